"""Hugging Face -> torch_dist on two ranks -> Hugging Face: the same bits; and FP8 on the way."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from examples.quickstart.tokenizer import build_tokenizer
from slime.launch.fp8_cast_bf16 import cast
from tools.convert_torch_dist_to_hf import main

LAYOUT = ["--tensor-model-parallel-size=2", "--sequence-parallel", "--bf16"]
LAYOUT += ["--expert-model-parallel-size=2", "--expert-tensor-parallel-size=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a model in `hf`, and a checkpoint of it in `torch_dist`."""
    folder = tmp_path_factory.mktemp("convert")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    config = Qwen3MoeConfig(**sizes, **experts, **heads, vocab_size=101, pad_token_id=None)
    Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(folder / "hf")
    build_tokenizer().save_pretrained(folder / "hf")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    places = [f"--hf-checkpoint={folder}/hf", f"--save={folder}/torch_dist"]
    with (folder / "stderr").open("w") as stderr:
        subprocess.run(
            [*start, "-m", "tools.convert_hf_to_torch_dist", *places, *LAYOUT],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            stderr=stderr,
            timeout=200,
            check=True,
        )
    return folder


@pytest.fixture
def said(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Lines on stderr since it was last asked; a line for each tensor, however quick it was."""
    monkeypatch.setattr("slime.trainer.progress._INTERVAL", 0.0)
    return lambda: capsys.readouterr().err.splitlines()


def _assert_progress(lines: list[str], what: str) -> None:
    """One line after another says how much is done, in the end all, and how much there is."""
    parts = [
        re.match(rf"{what}: ([0-9.]+) MB of ([0-9.]+) MB \(([0-9]+)%\), .*/s$", x) for x in lines
    ]
    found = [tuple(map(float, part.groups())) for part in parts if part]
    assert len(found) > 10, lines
    assert found == sorted(found) and found[0][2] < 20
    assert found[-1][0] == found[-1][1] > 0 and found[-1][2] == 100


def test_the_way_to_torch_dist_says_how_far_it_is(folder: Path) -> None:
    *_, loaded, writes = (folder / "stderr").read_text().splitlines()
    assert re.match(r"Load Hugging Face .*share.*: ([0-9.]+ MB) of \1 \(100%\), .*/s$", loaded)
    assert writes == f"Write {folder}/torch_dist"


def _places(folder: Path, out: str) -> list[str]:
    places = {"input": "torch_dist", "output": out, "origin-hf": "hf"}
    return [f"--{name}-dir={folder}/{path}" for name, path in places.items()]


def test_a_full_disk_is_a_sentence(folder: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    places = [f"--hf-checkpoint={folder}/hf", f"--save={folder}/full"]
    done = subprocess.run(
        [sys.executable, "-m", "tools.convert_hf_to_torch_dist", *places],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard)),
        capture_output=True,
        text=True,
        timeout=200,
    )
    *_, loaded, _, problem = done.stderr.splitlines()
    assert done.returncode == 1 and "(100%)" in loaded and "share" not in loaded
    assert problem.startswith("the checkpoint of rollout 0 could not be written")
    assert not list((folder / "full").iterdir())


def test_there_and_back_gives_the_same_bits(folder: Path, said: Callable) -> None:
    assert main([*_places(folder, "back"), "--chunk-size=50000"]) == 0
    _assert_progress(said(), "torch_dist to Hugging Face")
    original = load_file(folder / "hf" / "model.safetensors")
    files = sorted((folder / "back").glob("*.safetensors"))
    back = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert len(files) > 2 and back.keys() == original.keys()
    assert all(torch.equal(back[name], value) for name, value in original.items())
    assert (folder / "back" / "tokenizer.json").is_file()
    assert main(_places(folder, "back")) == 1  # it is there already


def test_fp8_blocks_can_be_cast_back(folder: Path, said: Callable) -> None:
    assert main([*_places(folder, "fp8"), "--quantize=fp8"]) == 0
    _assert_progress(said(), "torch_dist to Hugging Face")
    cast(folder / "fp8", folder / "bf16")
    _assert_progress(said(), "FP8 to bf16")
    back = load_file(folder / "bf16" / "model.safetensors")
    for name, value in load_file(folder / "hf" / "model.safetensors").items():
        scale = value.float().abs().max() / 448
        error = (back[name].float() - value.float()).abs()
        bound = torch.maximum(value.float().abs() / 14, scale * 2**-9)  # bf16 rounds once more
        assert (error <= bound).all(), name


def test_int4_has_a_quarter_of_the_bytes(folder: Path, said: Callable) -> None:
    assert main([*_places(folder, "int4"), "--quantize=int4"]) == 0
    _assert_progress(said(), "torch_dist to Hugging Face")
    packed = load_file(folder / "int4" / "model.safetensors")
    name = "model.layers.1.mlp.experts.3.down_proj.weight"
    assert packed[f"{name}_packed"].shape == (64, 4) and name not in packed
    assert packed[f"{name}_shape"].tolist() == [64, 32]


def test_what_cannot_be_done_is_a_sentence(folder: Path, capsys: pytest.CaptureFixture) -> None:
    words = [f"--input-dir={folder}/hf", f"--output-dir={folder}/x", f"--origin-hf-dir={folder}/hf"]
    assert main(words) == 1
    assert "holds no torch_dist checkpoint" in capsys.readouterr().err
    assert not (folder / "x").exists()
