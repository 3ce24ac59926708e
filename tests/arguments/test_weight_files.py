"""Weight files against the library that writes them, then cut, padded and exchanged."""

import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from slime.arguments.weight_files import check_weight_files, read_shapes

CONFIG = {"num_hidden_layers": 2, "vocab_size": 10, "hidden_size": 4}


@pytest.fixture
def model(tmp_path):
    """A folder with two shards of a model of two layers."""
    tensors = {"model.embed_tokens.weight": np.zeros((10, 4), np.float32)}
    for layer in range(2):
        tensors[f"model.layers.{layer}.mlp.up_proj.weight"] = np.zeros((8, 4), np.float32)
    save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    save_file({"model.norm.weight": np.ones(4, np.float32)}, tmp_path / "b.safetensors")
    return tmp_path


def test_a_whole_model_is_fine(model):
    assert read_shapes(model / "b.safetensors") == {"model.norm.weight": [4]}
    assert list(check_weight_files(model, CONFIG)) == []
    assert list(check_weight_files(model, {"text_config": CONFIG})) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], r"a.safetensors has \d+ bytes, and by its header"),
        (lambda content: content + b"x", "by its header"),
        (lambda content: content[:50], "breaks off in its header, after 50 bytes"),
        (lambda content: content[:3], "is no safetensors file"),
        (lambda content: b"", "is no safetensors file"),
        (lambda content: b"version https://git-lfs.github.com/spec/v1", "is no safetensors file"),
        (lambda content: (2).to_bytes(8, "little") + b"[]", "its header cannot be read"),
        (lambda content: (7).to_bytes(8, "little") + b'{"a":1}', "its header cannot be read"),
    ],
)
def test_half_a_file_is_refused(change, message, model):
    file = model / "a.safetensors"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(ValueError, match=message.replace("a.safetensors ", "")):
        read_shapes(file)
    (problem,) = check_weight_files(model, CONFIG)
    assert problem.startswith("a.safetensors ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 3}, "says 3 layers, its weights have 2"),
        ({"hidden_size": 8}, r"size \[10, 8\], model.embed_tokens.weight is \[10, 4\]"),
        ({"vocab_size": 9}, r"size \[9, 4\]"),
    ],
)
def test_weights_of_another_model_are_refused(change, message, model):
    (problem,) = check_weight_files(model, CONFIG | change)
    assert re.search(message, problem)
