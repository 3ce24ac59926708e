"""Write the model as a Hugging Face checkpoint, straight from the distributed ranks."""

from __future__ import annotations

import json
import os
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from safetensors.torch import save_file

from slime.trainer.checkpoint_files import fsync_folder
from slime.trainer.export import NamedTensor, buckets, named_hf_tensors

SHARD_BYTES = 5 * 1000**3
_INDEX = "model.safetensors.index.json"


def save_hf_model_direct_to_path(
    args: Namespace,
    output_dir: str | Path,
    model: list[DistributedDataParallel],
    *,
    model_name: str | None = None,
    quantization_config: dict[str, Any] | None = None,
    progress_desc: str = "Save HF checkpoint",
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Export ``model`` to ``output_dir``; collective. `transformers` and the engines load it.

    Shards of at most ``shard_bytes``, an index, config and tokenizer files of
    ``args.hf_checkpoint``. All is written
    to a temporary folder beside it, which then takes its name: a crash leaves no half checkpoint.

    Raises:
        NotImplementedError: ``quantization_config`` is given.
    """
    if quantization_config is not None:
        raise NotImplementedError("export to a quantised checkpoint")
    if model_name is not None:
        args = Namespace(**{**vars(args), "model_name": model_name})
    final = Path(output_dir)
    partial = final.with_name(f".{final.name}.partial")
    is_writer = dist.get_rank() == 0
    if is_writer:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    shards: list[dict[str, int]] = []
    for bucket in buckets(named_hf_tensors(args, model), shard_bytes):
        if is_writer:
            shards.append(_write_shard(partial, len(shards), bucket))
    if is_writer:
        _name_shards(partial, shards)
        _copy_assets(Path(args.hf_checkpoint), partial, str(args.dtype))
        shutil.rmtree(final, ignore_errors=True)
        os.replace(partial, final)
        fsync_folder(final.parent)
    dist.barrier()


def _write_shard(folder: Path, index: int, bucket: list[NamedTensor]) -> dict[str, int]:
    """Write one file; returns the bytes of each tensor in it."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in bucket}
    save_file(tensors, folder / f"shard-{index}", metadata={"format": "pt"})
    return {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}


def _name_shards(folder: Path, shards: list[dict[str, int]]) -> None:
    """Give the files their final names (which hold the number of shards), and write the index."""
    if len(shards) == 1:
        os.replace(folder / "shard-0", folder / "model.safetensors")
        return
    weight_map = {}
    for index, names in enumerate(shards):
        file = f"model-{index + 1:05d}-of-{len(shards):05d}.safetensors"
        os.replace(folder / f"shard-{index}", folder / file)
        weight_map.update(dict.fromkeys(names, file))
    total = sum(sum(names.values()) for names in shards)
    index_json = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / _INDEX).write_text(json.dumps(index_json, indent=2) + "\n")


def _copy_assets(source: Path, target: Path, dtype: str) -> None:
    """All of the original checkpoint but its weights: config, tokenizer, templates, code."""
    for file in sorted(source.iterdir()):
        if (
            file.is_file()
            and file.suffix not in (".safetensors", ".bin", ".pt")
            and file.name != _INDEX
        ):
            shutil.copyfile(file, target / file.name)
    config = json.loads((source / "config.json").read_text())
    for key in ("dtype", "torch_dtype"):
        if key in config:
            config[key] = dtype
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
