"""HF <-> Megatron: layouts, names of both specs, the round trip, and what is refused."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from shares import shard

from slime.trainer.hf_to_megatron.common import CheckpointError, SafetensorReader
from slime.trainer.megatron_to_hf.convert import remove_padding
from slime.trainer.tensor_layout import merge_qkv, split_qkv, unshard


def test_qkv_is_fused_group_by_group():
    # 4 heads in 2 groups, head dimension 1: rows are named by what they are
    q, k, v = torch.tensor([10, 11, 12, 13]), torch.tensor([20, 21]), torch.tensor([30, 31])
    fused = merge_qkv(q, k, v, groups=2)
    assert fused.tolist() == [10, 11, 20, 30, 12, 13, 21, 31]
    assert [x.tolist() for x in split_qkv(fused, groups=2, heads=4)] == [
        q.tolist(),
        k.tolist(),
        v.tolist(),
    ]


@pytest.mark.parametrize("rest", [(), (3,)])
def test_qkv_round_trip_of_weights_and_biases(rest):
    q, k, v = torch.randn(8 * 4, *rest), torch.randn(2 * 4, *rest), torch.randn(2 * 4, *rest)
    for got, want in zip(split_qkv(merge_qkv(q, k, v, 2), 2, 8), (q, k, v), strict=True):
        assert torch.equal(got, want)


def test_a_gated_shard_is_its_part_of_gate_then_of_up():
    gate_up = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8])  # gate 1-4, up 5-8
    assert shard(gate_up, 0, 1, 2, gated=True).tolist() == [3, 4, 7, 8]
    assert shard(gate_up, 0, 1, 2).tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("gated", [False, True])
def test_unshard_inverts_shard(dim, gated):
    full = torch.randn(8, 8)
    shares = [shard(full, dim, rank, 2, gated) for rank in range(2)]
    assert torch.equal(unshard(shares, dim, gated), full)


def test_vocabulary_padding_goes():
    table = torch.randn(101, 4)
    padded = torch.cat([table, torch.zeros(3, 4)])
    assert torch.equal(
        remove_padding("module.embedding.word_embeddings.weight", padded, 101), table
    )
    assert remove_padding("decoder.final_layernorm.weight", padded, 101) is padded


def test_a_tensor_is_read_from_its_shard_without_opening_the_others(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "one.safetensors")
    (tmp_path / "two.safetensors").write_text("not safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    reader = SafetensorReader(tmp_path)
    assert reader.names() == {"a", "b"} and "b" in reader
    assert reader.get_tensor("a").tolist() == [1.0, 1.0]
    with pytest.raises(KeyError, match="no tensor 'c'"):
        reader.get_tensor("c")


def test_missing_shards_are_named(tmp_path):
    index = {"weight_map": {"a": "gone.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"gone\.safetensors"):
        SafetensorReader(tmp_path)
    with pytest.raises(CheckpointError, match=r"no \*\.safetensors"):
        SafetensorReader(tmp_path / "nothing")


@pytest.mark.usefixtures("single_rank")
def test_all_that_does_not_fit_is_named_at_once(hf_model, args_for, tmp_path):
    from slime.trainer.trainer import Trainer

    folder = tmp_path / "broken"
    shutil.copytree(hf_model("qwen3"), folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    tensors["model.layers.1.mlp.down_proj.weight"] = torch.zeros(64, 95)
    tensors["model.layers.0.self_attn.k_proj.weight"] = torch.zeros(70, 64)
    tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(128)
    tensors["model.layers.0.rotary_emb.inv_freq"] = torch.zeros(16)  # derived: nobody needs it
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError) as error:
        Trainer(args_for(folder)).load()
    said = str(error.value).splitlines()[1:]
    assert len(said) == 4, said
    assert any("no tensor 'model.norm.weight'" in line for line in said)
    assert any("mlp.linear_fc2.weight: [64, 95] in the checkpoint, [64, 96]" in x for x in said)
    assert any("layers.0.self_attention.linear_qkv.weight" in line for line in said)
    assert any("self_attn.q_proj.bias: in the checkpoint, not in the model" in x for x in said)


@pytest.mark.usefixtures("single_rank")
def test_an_unknown_family_is_refused(hf_model, args_for):
    from slime.trainer.trainer import Trainer

    args = args_for(hf_model("qwen3"), model_name="nobody")
    with pytest.raises(CheckpointError, match="'nobody' is not supported"):
        Trainer(args).load()
