"""The shapes an update must have."""

import pytest
import torch
from safetensors.torch import save_file

from slime.weights.errors import WeightUpdateError
from slime.weights.expected import check_complete, check_shapes, checkpoint_shapes


def test_shapes_of_all_files_of_a_checkpoint(tmp_path):
    save_file({"a.weight": torch.zeros(2, 3)}, tmp_path / "model-1-of-2.safetensors")
    save_file({"b": torch.zeros(4), "c": torch.zeros(())}, tmp_path / "model-2-of-2.safetensors")
    assert checkpoint_shapes(tmp_path) == {"a.weight": (2, 3), "b": (4,), "c": ()}


def test_every_wrong_tensor_is_named():
    expected = {"a": (2, 3), "b": (4,)}
    check_shapes(expected, [("a", (2, 3)), ("b", (4,))])
    with pytest.raises(WeightUpdateError) as error:
        check_shapes(expected, [("a", (3, 2)), ("b", (4,)), ("bb", (4,))])
    assert "a [3, 2] (the checkpoint has [2, 3])" in str(error.value)
    assert "bb (not in the checkpoint)" in str(error.value)
    assert "; b " not in str(error.value)


def test_what_was_left_out_is_named():
    check_complete({"a": (1,), "b": (1,)}, {"a", "b"})
    with pytest.raises(WeightUpdateError, match="left out b, c"):
        check_complete({"c": (1,), "a": (1,), "b": (1,)}, {"a"})
