"""Every model family against Hugging Face's own code: logits, and the export bit for bit."""

from __future__ import annotations

import pytest
import torch
from hf_models import KINDS, write_hf_model
from safetensors.torch import load_file
from shares import shard

from slime.arguments.hf_shapes import disagreements, expected_shapes
from slime.arguments.model_config import read_model_config
from slime.arguments.weight_files import read_shapes
from slime.trainer.hf_to_megatron.common import SafetensorReader, ShareReader
from slime.trainer.megatron_to_hf.convert import convert_to_hf
from slime.trainer.param_names import canonical, is_gated, with_offsets

pytestmark = pytest.mark.usefixtures("single_rank")


def _logits(args, trainer, rollout) -> list[torch.Tensor]:
    """Of the response positions of every sample of the first step, [n, vocabulary] each."""
    from slime.trainer.micro_batch import micro_batches_of_step
    from slime.trainer.response_logits import forward
    from slime.trainer.rollout_tensors import prepare

    found = []
    with torch.no_grad():
        for batch in micro_batches_of_step(args, prepare(args, rollout), 0):
            rows = forward(args, trainer.model[0], batch)[0]
            found += rows.split([rollout["response_lengths"][i] for i in batch.samples])
    return found


def _hf_logits(folder, rollout, count: int) -> list[torch.Tensor]:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    with torch.no_grad():
        for ids, response in zip(
            rollout["tokens"][:count], rollout["response_lengths"], strict=False
        ):
            logits = model(input_ids=torch.as_tensor(ids)[None]).logits[0]
            found.append(logits[-response - 1 : -1])
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [False, True])
def test_the_tensors_expected_of_a_config_are_those_that_hugging_face_writes(kind, tied, tmp_path):
    folder = write_hf_model(tmp_path, kind, tied)
    config, found = read_model_config(folder), read_shapes(folder / "model.safetensors")
    assert expected_shapes(config) == found
    assert list(disagreements(found, config)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_export_equal_hugging_face(kind, hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer.trainer import Trainer

    folder = hf_model(kind, False)
    args, rollout = args_for(folder), rollout_of(3)
    trainer = Trainer(args)
    trainer.load()
    ours = _logits(args, trainer, rollout)
    for got, want in zip(ours, _hf_logits(folder, rollout, len(ours)), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
    trainer.save_hf(tmp_path / "export")
    exported = load_file(tmp_path / "export" / "model.safetensors")
    original = load_file(folder / "model.safetensors")
    assert exported.keys() == original.keys()
    assert all(torch.equal(exported[name], value) for name, value in original.items())


# What TransformerEngine's layers call a parameter, what Megatron's own do, in which model.
TRANSFORMER_ENGINE = [
    ("qwen2", "self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"),
    ("qwen2", "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"),
    (
        "qwen3_moe",
        "mlp.experts.linear_fc1.weight3",
        "mlp.experts.local_experts.3.linear_fc1.weight",
    ),
    (
        "glm4_moe",
        "mlp.experts.linear_fc2.weight2",
        "mlp.experts.local_experts.2.linear_fc2.weight",
    ),
    (
        "deepseek_v3",
        "self_attention.linear_q_up_proj.layer_norm_weight",
        "self_attention.q_layernorm.weight",
    ),
    (
        "moonlight",
        "self_attention.linear_kv_up_proj.layer_norm_weight",
        "self_attention.kv_layernorm.weight",
    ),
]


@pytest.mark.parametrize(("kind", "engine", "local"), TRANSFORMER_ENGINE)
def test_both_layer_implementations_name_the_same_tensors(kind, engine, local, hf_model, args_for):
    from slime.trainer.hf_weights import FAMILIES, family_of

    args = args_for(hf_model(kind, False))
    reader, family = SafetensorReader(args.hf_checkpoint), family_of(args)
    names = [f"module.module.decoder.layers.1.{engine}", f"decoder.layers.1.{local}"]
    assert canonical(names[0]) == names[1]
    values = [FAMILIES[family](name, reader, args.hf_architecture) for name in names]
    assert torch.equal(*values)
    back = [dict(convert_to_hf(args, family, name, values[0])) for name in names]
    assert back[0].keys() == back[1].keys() <= reader.names()


def test_a_rank_counts_its_layers_and_experts_from_zero():
    local = "module.decoder.layers.1.mlp.experts.linear_fc1.weight0"
    name = with_offsets(local, layer_offset=4, expert_offset=8)
    assert name == "decoder.layers.5.mlp.experts.local_experts.8.linear_fc1.weight"


@pytest.mark.parametrize("kind", ["qwen2", "qwen3_moe", "glm4", "glm4_moe", "deepseek_v3"])
def test_a_share_read_is_the_share_of_the_whole(kind, hf_model, args_for):
    from slime.trainer.hf_weights import (
        FAMILIES,
        family_of,
        named_global_parameters,
        partition_dim,
    )
    from slime.trainer.trainer import Trainer

    args = args_for(hf_model(kind, False), vocab_size=102)
    config, hf_tensor = args.hf_architecture, FAMILIES[family_of(args)]
    reader, merged = SafetensorReader(args.hf_checkpoint), 0
    for name, param in named_global_parameters(Trainer(args).model):
        dim = partition_dim(name, param)
        if dim is None or "word_embeddings" in name or "output_layer" in name:
            continue
        whole = hf_tensor(name, reader, config)
        for rank in range(2):
            share = hf_tensor(name, ShareReader(reader, dim, rank, 2), config)
            assert torch.equal(share, shard(whole, dim, rank, 2, is_gated(name))), name
        merged += is_gated(name) + ("linear_qkv" in name)
    assert merged


def test_rows_that_pad_the_vocabulary_are_zero(hf_model):
    reader = SafetensorReader(hf_model("qwen3"))
    whole = reader.get_tensor("model.embed_tokens.weight")
    shares = [
        ShareReader(reader, 0, rank, 4, (101, 104)).get_tensor("model.embed_tokens.weight")
        for rank in range(4)
    ]
    assert [len(share) for share in shares] == [26] * 4
    padded = torch.cat(shares)
    assert torch.equal(padded[: len(whole)], whole) and not padded[len(whole) :].any()


@pytest.mark.parametrize("kind", ["glm4_moe", "moonlight"])
def test_in_bf16_only_the_biases_of_routers_keep_all_their_bits(kind, hf_model, args_for, tmp_path):
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args_for(hf_model(kind, False), bf16=True))
    trainer.load()
    trainer.save_hf(tmp_path / "out")
    exported = load_file(tmp_path / "out" / "model.safetensors")
    for name, value in load_file(hf_model(kind, False) / "model.safetensors").items():
        exact = name.endswith("e_score_correction_bias")
        assert torch.equal(exported[name], value if exact else value.bfloat16()), name


def test_a_snapshot_holds_the_biases_of_routers(hf_model, args_for):
    from slime.trainer.hf_weights import named_global_parameters
    from slime.trainer.trainer import Trainer
    from slime.trainer.weight_snapshots import WeightSnapshots

    trainer = Trainer(args_for(hf_model("glm4_moe", False)))
    trainer.load()
    biases = {n: b for n, b in named_global_parameters(trainer.model) if "expert_bias" in n}
    before = {name: bias.clone() for name, bias in biases.items()}
    assert before and all(bias.any() for bias in before.values())
    snapshots = WeightSnapshots(trainer.model)
    snapshots.take("then")
    for bias in biases.values():
        bias.add_(1.0)
    snapshots.restore("then")
    assert all(torch.equal(bias, before[name]) for name, bias in biases.items())


def spec_with_plain_layers(args, config, vp_stage):
    """A layer specification by path: all layers are like the first."""
    from slime.trainer.model_provider import block_spec

    args.spec, given = None, args.spec
    try:
        block = block_spec(args, config, vp_stage)
    finally:
        args.spec = given
    block.layer_specs = block.layer_specs[:1] * 2
    return block


def test_layers_by_path(hf_model, args_for):
    from slime.trainer.trainer import Trainer

    # the model's first layer is dense, its second has experts: the function makes both dense
    args = args_for(hf_model("qwen3_moe_mixed", False), spec=[__name__, "spec_with_plain_layers"])
    names = [name for name, _ in Trainer(args).model[0].named_parameters()]
    assert any("layers.1.mlp.linear_fc1" in name for name in names)
    assert not any("experts" in name for name in names)
