"""mbridge, which other people wrote, reads and writes the same Megatron parameters as we do.

Its public ways, `load_weights` and `export_weights`, work on a module that has our parameters under
TransformerEngine's names: it knows no others, and needs nothing of the layers but their numbers.
"""

from __future__ import annotations

import dataclasses
import json
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hf_models import KINDS, with_prediction_layer
from safetensors.torch import load_file

from slime.trainer.hf_to_megatron.common import SafetensorReader, ShareReader
from slime.trainer.megatron_to_hf.convert import convert_to_hf
from slime.trainer.param_names import EMBEDDING, OUTPUT_LAYER, canonical

pytestmark = pytest.mark.usefixtures("single_rank")

# mbridge lacks GLM-4, layers without experts in a Qwen3 with experts, and a prediction layer of
# any DeepSeek but the one with 61 layers.
CASES = [(kind, False) for kind in KINDS if kind not in ("glm4", "qwen3_moe_mixed")]
CASES += [("qwen2", True), ("llama3", True)]
# With a layer that predicts a further token -> the model it is put on.
PREDICTING = {"mimo": "qwen2", "glm4_moe_predicting": "glm4_moe"}
CASES += [(kind, False) for kind in PREDICTING]

# What local layers call a parameter -> what TransformerEngine's do; by kind of layer.
DENSE = {"pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight"}
GROUPED = {"input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight"}
LATENT = {
    "self_attention.q_layernorm.weight": "self_attention.linear_q_up_proj.layer_norm_weight",
    "self_attention.kv_layernorm.weight": "self_attention.linear_kv_up_proj.layer_norm_weight",
}
# MiMo's own code, and SGLang's, multiply `input_proj` with (hidden state, token); Megatron has
# (token, hidden state) in `eh_proj`. mbridge 0.15.1 takes the one for the other.
UNSWAPPED = ("mtp.layers.0.eh_proj.weight", "model.mtp_layers.0.input_proj.weight")


def engine_names(local: list[str]) -> dict[str, str]:
    """TransformerEngine's name of each parameter -> the local one."""
    routed = {name.partition(".mlp.")[0] + "." for name in local if ".mlp.router.weight" in name}
    latent = any("linear_kv_down_proj" in name for name in local)
    found = {}
    for name in local:
        head, is_expert, tail = name.partition(".local_experts.")
        if is_expert:
            expert, layer, kind = tail.split(".")
            found[f"{head}.{layer}.{kind}{expert}"] = name
            continue
        dense = not name.startswith(tuple(routed))
        renamed = (LATENT if latent else GROUPED) | (DENSE if dense else {})
        suffix = next((s for s in renamed if name.endswith("." + s)), "")
        found[name.removesuffix(suffix) + renamed.get(suffix, "")] = name
    return found


def holder_of(values: dict[str, torch.Tensor]) -> torch.nn.Module:
    """A module with these parameters; the layers of its decoder say which they are."""
    root = torch.nn.Module()
    for name, value in values.items():
        *path, leaf = name.split(".")
        place = root
        for part in path:
            if part not in place._modules:
                place.add_module(part, torch.nn.Module())
            place = place.get_submodule(part)
        if leaf == "expert_bias":
            place.register_buffer(leaf, value)
        else:
            place.register_parameter(leaf, torch.nn.Parameter(value, requires_grad=False))
    layers = root.get_submodule("decoder.layers")
    root.decoder.layers = torch.nn.ModuleList(dict(sorted(layers.named_children())).values())
    for i, layer in enumerate(root.decoder.layers):
        layer.layer_number = i + 1
    return root


def bridge_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """mbridge's for this checkpoint, in fp32; some places meet what is newer than mbridge."""
    import mbridge
    import transformers
    from mbridge.core.safetensor_io import SafeTensorIO
    from mbridge.models import DeepseekV3Bridge, MimoBridge, Qwen2Bridge
    from megatron.core.transformer import MLATransformerConfig

    def renamed(max_position_embeddings: int, **others: Any) -> MLATransformerConfig:
        others["original_max_position_embeddings"] = max_position_embeddings
        return MLATransformerConfig(**others)

    monkeypatch.setattr(DeepseekV3Bridge, "TransformerConfigClass", staticmethod(renamed))
    # a model with tied embeddings changes this for all that come after it
    monkeypatch.setattr(Qwen2Bridge, "_DIRECT_MAPPING", dict(Qwen2Bridge._DIRECT_MAPPING))
    is_mimo = json.loads((folder / "config.json").read_text())["model_type"] == "mimo"
    config_class = transformers.Qwen2Config if is_mimo else transformers.AutoConfig
    config = config_class.from_pretrained(folder)
    config.rope_theta = config.rope_parameters["rope_theta"]  # where transformers 4 has it
    make = MimoBridge if is_mimo else mbridge.AutoBridge.from_config
    bridge = make(config, dtype=torch.float32)
    # DeepSeek's reader of FP8 is a Triton kernel, for GPUs; these files are fp32
    monkeypatch.setattr(bridge, "_get_safetensor_io", SafeTensorIO)
    return bridge


class Both(NamedTuple):
    """A checkpoint, our parameters with its values (by mbridge's names), and mbridge."""

    args: Namespace
    folder: Path
    ours: dict[str, torch.Tensor]
    bridge: Any


@pytest.fixture(params=CASES, ids=lambda case: case[0] + "-tied" * case[1])
def both(request, hf_model, args_for, monkeypatch, tmp_path) -> Both:
    from slime.trainer.hf_weights import named_global_parameters
    from slime.trainer.trainer import Trainer

    kind, tied = request.param
    predicts = kind in PREDICTING
    folder = hf_model(PREDICTING.get(kind, kind), tied)
    if predicts:
        family = kind.removesuffix("_predicting")
        folder = with_prediction_layer(folder, tmp_path / "model", family)
    args = args_for(folder, enable_mtp_training=predicts)
    trainer = Trainer(args)
    trainer.load()
    ours = dict(named_global_parameters(trainer.model))
    names = engine_names(list(ours))
    assert len(names) == len(ours)
    assert {name: canonical(name) for name in names} == names
    by_engine_name = {name: ours[local] for name, local in names.items()}
    return Both(args, folder, by_engine_name, bridge_of(folder, monkeypatch))


def swapped(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With the halves of what mbridge confuses changed over."""
    turned = {n: torch.cat(tensors[n].chunk(2, 1)[::-1], 1) for n in UNSWAPPED if n in tensors}
    return tensors | turned


def differing(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> list[str]:
    assert found.keys() == wanted.keys()
    return [name for name, value in wanted.items() if not torch.equal(found[name], value)]


def test_mbridge_loads_the_same_parameters(both):
    theirs = holder_of({n: torch.full_like(v, torch.nan) for n, v in both.ours.items()})
    both.bridge.load_weights([theirs], str(both.folder))
    found = dict(theirs.state_dict())
    is_mimo = both.args.hf_architecture["model_type"] == "mimo"
    assert differing(swapped(found) if is_mimo else found, both.ours) == []


def test_mbridge_exports_the_same_tensors(both):
    """Of values that no checkpoint has, so that each parameter is told from every other."""
    from slime.trainer.hf_weights import family_of

    generator = torch.Generator().manual_seed(3)
    values = {n: torch.randn(v.shape, generator=generator) for n, v in both.ours.items()}
    tensors: dict[str, torch.Tensor] = {}
    for name, value in values.items():
        tensors |= convert_to_hf(both.args, family_of(both.args), canonical(name), value)
    theirs = dict(both.bridge.export_weights([holder_of(values)]))
    assert differing(swapped(theirs), tensors) == []
    assert theirs.keys() == load_file(both.folder / "model.safetensors").keys()


def test_mbridge_divides_parameters_over_two_ranks_likewise(both):
    from slime.trainer.hf_weights import FAMILIES, family_of, partition_dim

    bridge, config = both.bridge, both.args.hf_architecture
    bridge.vocab_size, bridge.padded_vocab_size = config["vocab_size"], 102
    bridge.make_vocab_size_divisible_by = 2
    bridge.mpu = dataclasses.replace(bridge.mpu, tp_size=2, etp_size=2)
    reader, hf_tensor = SafetensorReader(both.folder), FAMILIES[family_of(both.args)]
    divided = 0
    for name, param in both.ours.items():
        dim = partition_dim(canonical(name), param)
        if dim is None:
            continue
        sources = bridge._weight_name_mapping_mcore_to_hf(name)
        whole = bridge._weight_to_mcore_format(name, [reader.get_tensor(s) for s in sources])
        sizes = (101, 102) if canonical(name) in (EMBEDDING, OUTPUT_LAYER) else None
        readers = [ShareReader(reader, dim, rank, 2, sizes) for rank in range(2)]
        ours = [hf_tensor(canonical(name), each, config) for each in readers]
        theirs = bridge._weight_split_across_tp(name, whole, ours[0], 2)
        if name in UNSWAPPED:
            continue
        assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True)), name
        assert torch.equal(bridge._weight_merge_across_tp(name, ours, param), whole), name
        divided += 1
    assert divided > 8
