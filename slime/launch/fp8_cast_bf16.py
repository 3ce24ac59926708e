"""Write a Hugging Face checkpoint whose weights are FP8 blocks as one in bf16.

    python -m slime.launch.fp8_cast_bf16 SOURCE TARGET

A file of weights is in memory at a time, and stderr says how far it is.
A quantised weight has its scales beside it, one for each block of 128 x 128 values:
see slime.trainer.quantize.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from slime.arguments.weight_files import read_shapes
from slime.trainer.progress import Progress
from slime.trainer.quantize import SCALE, dequantize_fp8_blocks

BLOCK = 128
_INDEX = "model.safetensors.index.json"


def dequantize(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """[rows, columns] of FP8 times [blocks of rows, blocks of columns] of float32, as bf16.

    Raises:
        ValueError: the shapes do not belong together.
    """
    blocks = tuple(-(-size // BLOCK) for size in weight.shape)
    if weight.dim() != 2 or tuple(scale.shape) != blocks:
        shapes = f"{tuple(weight.shape)} and {tuple(scale.shape)}"
        raise ValueError(f"weight and scales of shapes {shapes}: not blocks of {BLOCK} x {BLOCK}")
    return dequantize_fp8_blocks(weight, scale, (BLOCK, BLOCK)).to(torch.bfloat16)


def cast_shard(
    shard: Path, target: Path, scale_of: Callable[[str], torch.Tensor | None], progress: Progress
) -> int:
    """Write one file of tensors in bf16, without its scales; the bytes of its tensors."""
    tensors = {}
    with safe_open(shard, framework="pt") as source:
        for name in source.keys():  # noqa: SIM118 - it is no mapping
            if name.endswith(SCALE):
                continue
            tensor, scale = source.get_tensor(name), scale_of(name)
            tensors[name] = tensor if scale is None else dequantize(tensor, scale)
            progress.add(tensor.nbytes + (0 if scale is None else scale.nbytes))
    save_file(tensors, target / shard.name, metadata={"format": "pt"})
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def cast(source: Path, target: Path) -> None:
    """Write the whole checkpoint; `target` appears when it is complete.

    Raises:
        OSError: `source` holds no model, or `target` is there already.
        SafetensorError: a file could not be written.
        ValueError: a file of weights is damaged, or a weight and its scales do not fit.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists: remove it, or name another folder")
    shards = sorted(source.glob("*.safetensors"))
    if not shards:
        raise FileNotFoundError(f"{source}: no *.safetensors")
    if not (source / "config.json").is_file():
        raise FileNotFoundError(f"{source}: no config.json")
    owner: dict[str, Path] = {}
    for shard in shards:
        try:
            owner |= dict.fromkeys(read_shapes(shard), shard)
        except ValueError as error:
            raise ValueError(f"{shard} {error}") from None

    def scale_of(name: str) -> torch.Tensor | None:
        if (holder := owner.get(name + SCALE)) is None:
            return None
        with safe_open(holder, framework="pt") as file:
            return file.get_tensor(name + SCALE)

    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    progress = Progress("FP8 to bf16", sum(map(_tensor_bytes, shards)))
    names = {name: file.name for name, file in owner.items() if not name.endswith(SCALE)}
    try:
        size = sum(cast_shard(shard, partial, scale_of, progress) for shard in shards)
        _copy_the_rest(source, partial, names, size)
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    progress.close()


def _tensor_bytes(shard: Path) -> int:
    """What is in the file behind its header, which begins with its length."""
    with shard.open("rb") as file:
        return shard.stat().st_size - 8 - int.from_bytes(file.read(8), "little")


def _copy_the_rest(source: Path, target: Path, names: dict[str, str], size: int) -> None:
    for file in source.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copyfile(file, target / file.name)
    config = json.loads((source / "config.json").read_text())
    config.pop("quantization_config", None)
    config["dtype"] = "bfloat16"
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if (source / _INDEX).exists():
        index = {"metadata": {"total_size": size}, "weight_map": names}
        (target / _INDEX).write_text(json.dumps(index, indent=2) + "\n")


def main() -> int:
    """The exit code: 1 with a sentence if it cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, help="folder of the checkpoint in FP8")
    parser.add_argument("target", type=Path, help="folder that will be made")
    options = parser.parse_args()
    try:
        cast(options.source, options.target)
    except (OSError, ValueError, SafetensorError) as error:
        print(f"fp8_cast_bf16: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
