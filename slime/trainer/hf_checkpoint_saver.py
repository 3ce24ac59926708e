"""Write the model as a Hugging Face checkpoint, straight from the distributed ranks."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from safetensors import SafetensorError
from safetensors.torch import save_file

from slime.trainer.buckets import NamedTensor, buckets, own_copy
from slime.trainer.checkpoint_files import fsync_folder
from slime.trainer.export import named_hf_tensors
from slime.trainer.hf_to_megatron.common import CheckpointError, SafetensorReader
from slime.trainer.hf_weights import PREDICTION_LAYER
from slime.trainer.model_config import train_dtype
from slime.trainer.progress import Progress
from slime.trainer.quantize import SCALE, quantize_weights

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
    ``args.hf_checkpoint``. All is written to a temporary folder beside it, which then takes its
    name: a crash, or a full disk, leaves what was there before. One shard is in memory at a time,
    on the first rank only.

    Layers that predict further tokens and are not trained are copied as they were.

    Args:
        quantization_config: quantise like this (see :mod:`slime.trainer.quantize`).

    Raises:
        CheckpointError: it could not be written; on every rank.
        ValueError: an unknown kind of quantisation.
    """
    if model_name is not None:
        args = Namespace(**{**vars(args), "model_name": model_name})
    tensors = named_hf_tensors(args, model, quantization_config)
    problem = ""
    if dist.get_rank() == 0:
        writer = HFWriter(Path(output_dir))
        try:
            source = Path(args.hf_checkpoint)
            written: set[str] = set()
            untrained = untrained_layers(source, written, train_dtype(args), quantization_config)
            both = itertools.chain(_on_host(tensors, written), untrained)
            for bucket in buckets(Progress(progress_desc).over(both), shard_bytes):
                writer.write_shard(bucket)
            writer.finish(source, str(args.dtype), quantization_config)
        except (OSError, SafetensorError, CheckpointError) as error:
            writer.discard()
            problem = f"{output_dir} could not be written: {error}"
    for _ in tensors:
        pass  # the others take part in the gathering; also when the first could not write
    said = [problem]
    dist.broadcast_object_list(said, src=0)
    if said[0]:
        raise CheckpointError(said[0])


def _on_host(tensors: Iterator[NamedTensor], written: set[str]) -> Iterator[NamedTensor]:
    """Copies, so that what the model holds, and what is gathered, need not stay."""
    for name, tensor in tensors:
        written.add(name)
        yield name, own_copy(tensor)


def untrained_layers(
    source: Path,
    written: Collection[str],
    dtype: torch.dtype,
    quantization: Mapping[str, Any] | None,
) -> Iterator[NamedTensor]:
    """The prediction layers of ``source`` of which nothing is among ``written``.

    Args:
        written: looked at when the first tensor is asked for.
        dtype: of those that ``source`` has in FP8.
    """
    if not any(source.glob("*.safetensors")):
        return
    reader = SafetensorReader(source)
    have = {layer[0] for layer in map(PREDICTION_LAYER.match, written) if layer}
    for name in sorted(reader.names()):
        layer = PREDICTION_LAYER.match(name)
        if not layer or layer[0] in have or name.endswith(SCALE):
            continue
        tensor = reader.get_tensor(name)
        if name + SCALE in reader:
            tensor = tensor.to(dtype)
        tensors = [(name, tensor)]
        yield from quantize_weights(tensors, quantization) if quantization else tensors


class HFWriter:
    """A checkpoint that is being written beside the place where it will be."""

    def __init__(self, final: Path) -> None:
        self._final = final
        self._partial = final.with_name(f".{final.name}.partial")
        self._replaced = final.with_name(f".{final.name}.replaced")
        self._shards: list[dict[str, int]] = []
        self.discard()
        if self._replaced.exists() and not final.exists():  # a crash between two renames
            os.replace(self._replaced, final)

    def discard(self) -> None:
        """Remove what has been written so far, here or by a save that crashed."""
        shutil.rmtree(self._partial, ignore_errors=True)

    def write_shard(self, bucket: list[NamedTensor]) -> None:
        """Write the next file: contiguous tensors in host memory."""
        self._partial.mkdir(parents=True, exist_ok=True)
        file = self._partial / f"shard-{len(self._shards)}"
        save_file(dict(bucket), file, metadata={"format": "pt"})
        sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in bucket}
        self._shards.append(sizes)

    def finish(self, source: Path, dtype: str, quantization: dict[str, Any] | None) -> None:
        """Name the shards, copy what else belongs to a checkpoint, and put it in its place."""
        self._name_shards()
        _copy_assets(source, self._partial, dtype, quantization)
        for file in self._partial.iterdir():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        shutil.rmtree(self._replaced, ignore_errors=True)
        if self._final.exists():
            os.replace(self._final, self._replaced)
        os.replace(self._partial, self._final)
        fsync_folder(self._final.parent)
        shutil.rmtree(self._replaced, ignore_errors=True)

    def _name_shards(self) -> None:
        """Give the files their final names (which hold their number), and write the index."""
        folder, count = self._partial, len(self._shards)
        if count == 1:
            os.replace(folder / "shard-0", folder / "model.safetensors")
            return
        weight_map = {}
        for index, sizes in enumerate(self._shards):
            file = f"model-{index + 1:05d}-of-{count:05d}.safetensors"
            os.replace(folder / f"shard-{index}", folder / file)
            weight_map.update(dict.fromkeys(sizes, file))
        total = sum(sum(sizes.values()) for sizes in self._shards)
        index_json = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / _INDEX).write_text(json.dumps(index_json, indent=2) + "\n")


def _copy_assets(
    source: Path, target: Path, dtype: str, quantization: dict[str, Any] | None
) -> None:
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
    config.pop("quantization_config", None)
    if quantization is not None:
        config["quantization_config"] = quantization
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
