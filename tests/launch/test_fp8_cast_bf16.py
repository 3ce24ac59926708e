"""A checkpoint in FP8 blocks becomes bf16: each value times its own block's scale."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from slime.launch.fp8_cast_bf16 import cast, dequantize, main


def by_hand(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """One value at a time, in float64."""
    out = torch.empty(weight.shape, dtype=torch.float64)
    for i in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            out[i, j] = weight[i, j].double() * scale[i // 128, j // 128].double()
    return out


def quantised(rows: int, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator) * 100
    scale = torch.rand(-(-rows // 128), -(-columns // 128), generator=generator) + 0.01
    return weight.to(torch.float8_e4m3fn), scale


@pytest.mark.parametrize("shape", [(128, 128), (130, 257), (3, 5)])
def test_each_value_has_its_blocks_scale(shape: tuple[int, int]) -> None:
    weight, scale = quantised(*shape, seed=1)
    expected = by_hand(weight, scale)
    error = (dequantize(weight, scale).double() - expected).abs()
    assert (error <= expected.abs() * 2**-8).all()  # bf16 has 8 bits


def test_scales_of_other_blocks_are_refused() -> None:
    weight, _ = quantised(256, 128, seed=1)
    with pytest.raises(ValueError, match=r"\(256, 128\) and \(1, 1\)"):
        dequantize(weight, torch.ones(1, 1))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two shards; the scale of a weight lies in the other one."""
    folder = tmp_path / "fp8"
    folder.mkdir()
    weight, scale = quantised(130, 140, seed=2)
    save_file({"a": weight, "norm": torch.ones(3).bfloat16()}, folder / "model-1.safetensors")
    save_file({"a_scale_inv": scale, "b": torch.zeros(2)}, folder / "model-2.safetensors")
    names = {"a": "model-1.safetensors", "norm": "model-1.safetensors", "b": "model-2.safetensors"}
    index = {"metadata": {}, "weight_map": names | {"a_scale_inv": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"model_type": "x", "quantization_config": {"quant_method": "fp8"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_a_whole_checkpoint(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "bf16"
    cast(source, target)
    first = load_file(target / "model-1.safetensors")
    assert first.keys() == {"a", "norm"}
    assert first["a"].dtype == torch.bfloat16
    weight, scale = quantised(130, 140, seed=2)
    assert torch.equal(first["a"], dequantize(weight, scale))
    assert load_file(target / "model-2.safetensors").keys() == {"b"}
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == {"a", "b", "norm"}
    assert index["metadata"]["total_size"] == 130 * 140 * 2 + 3 * 2 + 2 * 4
    config = json.loads((target / "config.json").read_text())
    assert config == {"model_type": "x", "dtype": "bfloat16"}
    assert (target / "tokenizer.json").read_text() == "{}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bf16", "fp8"]


def _break_off(source: Path) -> None:
    file = source / "model-2.safetensors"
    file.write_bytes(file.read_bytes()[:-8])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda source: [file.unlink() for file in source.glob("*.safetensors")], "no *.safet"),
        (lambda source: (source / "config.json").unlink(), "no config.json"),
        (lambda source: source.with_name("bf16").mkdir(), "bf16 exists: remove it"),
        (_break_off, "model-2.safetensors has 152 bytes"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    source: Path, harm: Callable, words: str, monkeypatch, capsys
) -> None:
    harm(source)
    monkeypatch.setattr(sys, "argv", ["", str(source), str(source.with_name("bf16"))])
    assert main() == 1
    said = capsys.readouterr().err
    assert sorted(path.name for path in source.parent.iterdir()) in (["fp8"], ["bf16", "fp8"])
    assert said.startswith("fp8_cast_bf16: ") and words in said and said.count("\n") == 1


def test_the_command_shows_progress(source: Path) -> None:
    words = [str(source), str(source.with_name("bf16"))]
    command = [sys.executable, "-m", "slime.launch.fp8_cast_bf16"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(r"FP8 to bf16: 0.0 MB of 0.0 MB \(100%\), .* MB/s\n", done.stderr)
    done = subprocess.run([*command, words[0]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "required: target" in done.stderr
