"""The Hugging Face export: shards, quantised weights, and what a full disk leaves behind."""

from __future__ import annotations

import json
import resource
import shutil

import pytest
import torch
from safetensors.torch import load_file

from slime.trainer.hf_to_megatron.common import CheckpointError

pytestmark = pytest.mark.usefixtures("single_rank")

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}


@pytest.fixture(scope="module")
def trainer(hf_model, args_for):
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args_for(hf_model("qwen3_moe", False)))
    trainer.load()
    return trainer


def _export(trainer, folder, **options) -> dict[str, torch.Tensor]:
    from slime.trainer.hf_checkpoint_saver import save_hf_model_direct_to_path

    save_hf_model_direct_to_path(trainer.args, folder, trainer.model, **options)
    return {name: t for f in folder.glob("*.safetensors") for name, t in load_file(f).items()}


def test_shards_and_their_index_hold_every_tensor_once(trainer, tmp_path):
    import transformers

    tensors = _export(trainer, tmp_path / "out", shard_bytes=30_000)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == tensors.keys()
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors.values())
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 4 and files[0].name == f"model-00001-of-{len(files):05d}.safetensors"
    assert all(f.stat().st_size < 40_000 for f in files if len(load_file(f)) > 1)
    _, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_leaves_the_old_export(trainer, tmp_path):
    folder = tmp_path / "out"
    before = _export(trainer, folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(CheckpointError, match="out could not be written"):
            _export(trainer, folder, shard_bytes=30_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    after = load_file(folder / "model.safetensors")
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_an_export_that_a_crash_has_cut_between_two_renames_is_put_back(trainer, tmp_path):
    _export(trainer, tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / ".out.replaced")
    (tmp_path / ".out.partial").mkdir()
    with pytest.raises(ValueError, match="not supported"):
        _export(trainer, tmp_path / "out", quantization_config={"quant_method": "none"})
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_fp8_blocks_are_exported_and_loaded_again(trainer, args_for, tmp_path):
    from slime.trainer.trainer import Trainer

    plain = _export(trainer, tmp_path / "plain")
    tensors = _export(trainer, tmp_path / "fp8", quantization_config=FP8)
    config = json.loads((tmp_path / "fp8" / "config.json").read_text())
    assert config["quantization_config"] == FP8
    name = "model.layers.1.mlp.experts.2.down_proj.weight"
    assert tensors[name].dtype == torch.float8_e4m3fn
    assert tensors[f"{name}_scale_inv"].shape == (1, 1)
    assert tensors["model.layers.1.mlp.gate.weight"].dtype == torch.float32
    again = Trainer(args_for(tmp_path / "fp8"))
    again.load()
    read = _export(again, tmp_path / "read")
    assert read.keys() == plain.keys()
    for key, value in plain.items():
        scale = value.abs().max() / 448
        error = (read[key] - value).abs()
        assert (error <= torch.maximum(value.abs() / 16, scale * 2**-10) * 1.001).all(), key
    assert "quantization_config" not in json.loads((tmp_path / "read/config.json").read_text())
    (bucket,) = again.hf_weight_buckets(1 << 30)  # the engines get what they were started with
    assert {n for n, _ in bucket} == tensors.keys()
    assert all(torch.equal(tensors[n].float(), t.float()) for n, t in bucket if "scale" not in n)


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "glm4_moe", "moonlight"])
def test_a_torch_dist_checkpoint_becomes_the_model_it_was_made_of(
    kind, hf_model, args_for, tmp_path
):
    from slime.trainer.torch_dist_to_hf import convert
    from slime.trainer.trainer import Trainer

    folder = hf_model(kind, kind == "qwen3")
    trainer = Trainer(args_for(folder, save=str(tmp_path / "save"), no_save_optim=True))
    trainer.load()
    trainer.save(3)
    trainer.finish_save()
    convert(tmp_path / "save", tmp_path / "out", folder, shard_bytes=100_000)
    original = load_file(folder / "model.safetensors")
    back = {n: t for f in (tmp_path / "out").glob("*.safetensors") for n, t in load_file(f).items()}
    assert back.keys() == original.keys()
    assert all(torch.equal(back[name], value) for name, value in original.items())
    again = Trainer(args_for(tmp_path / "out"))
    again.load()  # config.json came along

    with pytest.raises(CheckpointError, match="another model|is not of"):
        convert(tmp_path / "save", tmp_path / "wrong", hf_model("deepseek_v3_grouped", False))
    with pytest.raises(CheckpointError, match="no torch_dist checkpoint"):
        convert(tmp_path / "nothing", tmp_path / "wrong", folder)
    assert not [path for path in tmp_path.iterdir() if "wrong" in path.name]


def test_a_conversion_holds_a_few_shards_however_large_the_model_is(args_for, tmp_path):
    import memray
    import transformers

    from slime.trainer.torch_dist_to_hf import convert
    from slime.trainer.trainer import Trainer

    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 20}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
    config = transformers.LlamaConfig(**sizes, **heads)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "hf")
    args = args_for(tmp_path / "hf", save=str(tmp_path / "save"), no_save_optim=True)
    trainer = Trainer(args)
    trainer.load()
    trainer.save(0)
    trainer.finish_save()
    origin, shard = tmp_path / "origin", 2 << 20
    origin.mkdir()  # without weights: safetensors asks for memory as large as a file, and uses none
    shutil.copy(tmp_path / "hf" / "config.json", origin)
    with memray.Tracker(tmp_path / "record.bin"):
        convert(tmp_path / "save", tmp_path / "out", origin, shard_bytes=shard)
    size = sum(file.stat().st_size for file in (tmp_path / "out").glob("*.safetensors"))
    peak = memray.FileReader(tmp_path / "record.bin").metadata.peak_memory
    assert size > 16 * shard and peak < 6 * shard, (size, peak)
