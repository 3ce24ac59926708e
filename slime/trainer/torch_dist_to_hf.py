"""A torch_dist checkpoint -> a Hugging Face checkpoint, one tensor at a time and without a model.

Whatever layout it was saved from, a torch_dist checkpoint holds whole tensors; those of the layers
are stacked if all layers are alike, and those of a layer's experts always.
"""

from __future__ import annotations

import math
import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader, LoadPlan, LoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from slime.arguments.model_config import megatron_shape, read_model_config
from slime.arguments.weight_files import read_shapes
from slime.trainer.buckets import NamedTensor, buckets, own_copy
from slime.trainer.checkpoint_files import iteration_dir, latest_iteration
from slime.trainer.checkpoint_fit import MODEL
from slime.trainer.hf_checkpoint_saver import SHARD_BYTES, HFWriter, untrained_layers
from slime.trainer.hf_to_megatron.common import CheckpointError
from slime.trainer.hf_weights import may_be_left
from slime.trainer.megatron_to_hf.convert import CONVERTERS, convert_to_hf
from slime.trainer.param_names import OUTPUT_LAYER
from slime.trainer.progress import Progress
from slime.trainer.quantize import quantize_weights

_STACKED = re.compile(r"^decoder\.layers\.(?!\d)")
_EXPERTS = ".mlp.experts.experts."


def convert(
    source: str | Path,
    target: str | Path,
    origin_hf_dir: str | Path,
    quantization_config: dict[str, Any] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write ``target`` with the weights of ``source`` and all else of ``origin_hf_dir``.

    Memory: one shard and one tensor.

    Args:
        source: a checkpoint's folder (iter_...), or the folder of all, of which the latest is
            taken.

    Raises:
        CheckpointError: there is no checkpoint, or it is of another model.
    """
    config = read_model_config(Path(origin_hf_dir))
    if config.get("model_type") not in CONVERTERS:
        raise CheckpointError(f"{origin_hf_dir}: {config.get('model_type')} is not supported")
    shape = {"num_query_groups": None, **megatron_shape(config)}
    args = Namespace(**shape, hf_architecture=config)
    found: dict[str, torch.Tensor] = {}  # without their data
    writer = HFWriter(Path(target))
    try:
        for bucket in buckets(_hf_tensors(args, Path(source), found), shard_bytes):
            if quantization_config is not None:
                bucket = quantize_weights(bucket, quantization_config)
            writer.write_shard([(name, own_copy(t)) for name, t in bucket])
        _compare(args, Path(origin_hf_dir), found)
        untrained = untrained_layers(
            Path(origin_hf_dir), found, torch.bfloat16, quantization_config
        )
        for bucket in buckets(untrained, shard_bytes):
            writer.write_shard(bucket)
        # A router's bias is float32 in every model: the other type is the model's.
        dtype = min(str(t.dtype).removeprefix("torch.") for t in found.values())
        writer.finish(Path(origin_hf_dir), dtype, quantization_config)
    finally:
        writer.discard()


def _hf_tensors(
    args: Namespace, source: Path, found: dict[str, torch.Tensor]
) -> Iterator[NamedTensor]:
    """The model's tensors, which are noted in ``found``."""
    tied = not args.untie_embeddings_and_output_weights
    for name, param in whole_parameters(checkpoint_folder(source)):
        if tied and name == OUTPUT_LAYER:
            continue
        try:
            tensors = convert_to_hf(args, args.hf_architecture["model_type"], name, param)
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(f"{source} is of another model: {name}: {error}") from error
        found.update((name, tensor.to("meta")) for name, tensor in tensors)
        yield from tensors


def _compare(args: Namespace, origin: Path, found: dict[str, torch.Tensor]) -> None:
    """
    Raises:
        CheckpointError: the model is not that of ``origin``; it names what differs.
    """
    if not found:
        raise CheckpointError("the checkpoint holds no model")
    expected = {n: s for file in origin.glob("*.safetensors") for n, s in read_shapes(file).items()}
    if not expected or "quantization_config" in args.hf_architecture:
        return
    ours = {name: list(tensor.shape) for name, tensor in found.items()}
    needed = {name for name in expected if not may_be_left(args, name)}
    wrong = sorted(name for name in needed | ours.keys() if ours.get(name) != expected.get(name))
    if wrong:
        lines = [f"{n}: {ours.get(n, 'none')}, there {expected.get(n, 'none')}" for n in wrong]
        raise CheckpointError(f"the checkpoint is not of {origin}:\n  " + "\n  ".join(lines))


def checkpoint_folder(source: str | Path) -> Path:
    """The folder with the shards.

    Raises:
        CheckpointError: there is none.
    """
    folder = Path(source)
    if not (folder / ".metadata").is_file():
        iteration = latest_iteration(folder)
        if iteration is None:
            raise CheckpointError(f"{source} holds no torch_dist checkpoint")
        folder = iteration_dir(folder, iteration)
    return folder


def whole_parameters(folder: Path) -> Iterator[NamedTensor]:
    """(global Megatron name, whole parameter) of the model in a checkpoint; shows progress."""
    reader = FileSystemReader(folder)
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    sizes = {
        key: tuple(stored.size)
        for key, stored in metadata.state_dict_metadata.items()
        if key.startswith(MODEL) and isinstance(stored, TensorStorageMetadata)
    }
    tensors = (
        (name, _read(reader, metadata, key, index))
        for key, size in sizes.items()
        for name, index in _parts(key, size)
    )
    total = sum(math.prod(size) * _itemsize(metadata, key) for key, size in sizes.items())
    yield from Progress("torch_dist to Hugging Face", total).over(tensors)


def _parts(key: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The parameters stacked under a key, and where in its first dimensions each lies."""
    layers = range(shape[0]) if _STACKED.match(key) else None
    for layer in [None] if layers is None else layers:
        name = key if layer is None else _STACKED.sub(f"decoder.layers.{layer}.", key)
        index = () if layer is None else (layer,)
        if _EXPERTS not in key:
            yield name, index
            continue
        for expert in range(shape[len(index)]):
            local = f".mlp.experts.local_experts.{expert}."
            yield name.replace(_EXPERTS, local), (*index, expert)


class _PartPlanner(LoadPlanner):
    """Gives torch's reader one tensor to fill."""

    def __init__(self, target: torch.Tensor) -> None:
        self._target = target

    def resolve_tensor(self, read_item: Any) -> torch.Tensor:
        """Where a stored chunk, or a part of it, belongs."""
        target = self._target
        for dim, (begin, length) in enumerate(
            zip(read_item.dest_offsets, read_item.lengths, strict=True)
        ):
            target = target.narrow(dim, begin, length)
        return target

    def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
        """It has been copied into its place."""

    def load_bytes(self, read_item: Any, value: Any) -> None:
        raise AssertionError("only tensors are read")

    def set_up_planner(self, *args: Any, **kwargs: Any) -> None:
        """The plan is made outside, as these four would not make it."""

    create_local_plan = create_global_plan = finish_plan = set_up_planner  # type: ignore[assignment]


def _itemsize(metadata: Metadata, key: str) -> int:
    stored = metadata.state_dict_metadata[key]
    assert isinstance(stored, TensorStorageMetadata)
    return stored.properties.dtype.itemsize


def _read(
    reader: FileSystemReader, metadata: Metadata, key: str, index: tuple[int, ...]
) -> torch.Tensor:
    """The tensor at ``index`` of the first dimensions."""
    stored = metadata.state_dict_metadata[key]
    assert isinstance(stored, TensorStorageMetadata)
    rest = tuple(stored.size)[len(index) :]
    target = torch.empty((1,) * len(index) + rest, dtype=stored.properties.dtype)
    chunk = ChunkStorageMetadata(offsets=torch.Size(index + (0,) * len(rest)), sizes=target.size())
    plan = LoadPlan(create_read_items_for_chunk_list(key, stored, [chunk]))
    reader.read_data(plan, _PartPlanner(target)).wait()
    return target.view(rest)
