"""Layer by layer: equal to transformers, and the first layer that is not is found."""

from __future__ import annotations

import pytest
import torch

from slime.trainer.layer_alignment import compare, first_difference, hf_layers, megatron_layers

pytestmark = pytest.mark.usefixtures("single_rank")


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "deepseek_v3"])
def test_every_layer_equals_that_of_transformers(kind, hf_model, args_for):
    folder = hf_model(kind, False)
    ids = torch.arange(3, 23)
    differences = compare(megatron_layers(args_for(folder), ids), hf_layers(folder, ids))
    assert [d.name for d in differences] == ["embedding", "layer.0", "layer.1", "logits"]
    assert all(difference.largest < 1e-5 for difference in differences)
    assert first_difference(differences, 1e-5) is None


def test_the_layer_that_was_changed_is_the_first_that_differs(hf_model, args_for, tmp_path):
    import transformers

    folder = hf_model("qwen3", False)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0] += 0.1
    model.save_pretrained(tmp_path)
    ids = torch.arange(3, 23)
    found = compare(megatron_layers(args_for(folder), ids), hf_layers(tmp_path, ids))
    assert first_difference(found, 1e-4).name == "layer.1"
    with pytest.raises(ValueError, match="layer.1 is .* missing in the other"):
        compare({"layer.0": ids}, {"layer.0": ids, "layer.1": ids})
