"""torch_dist checkpoints: everything of the trainer, in one atomic step.

`<save>/iter_0000019/` is written under a temporary name and renamed when complete; then
`latest_checkpointed_iteration.txt` is replaced. A crash at any moment leaves the previous
checkpoint valid.
"""

from __future__ import annotations

import os
import random
import shutil
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

from slime.trainer.hf_to_megatron.common import CheckpointError
from slime.trainer.torch_dist_writer import InProcessSaveStrategy

TRACKER = "latest_checkpointed_iteration.txt"
_OURS = (".distcp", ".metadata", "common.pt", "metadata.json")


@dataclass(frozen=True)
class TrainState:
    """What is saved: the wrapped chunks; optimizer and scheduler, or None if not wanted."""

    model: list[DistributedDataParallel]
    optimizer: MegatronOptimizer | None
    scheduler: OptimizerParamScheduler | None


def iteration_dir(root: str | Path, iteration: int) -> Path:
    """The folder of one checkpoint."""
    return Path(root) / f"iter_{iteration:07d}"


def latest_iteration(root: str | Path | None, step: int | None = None) -> int | None:
    """The iteration the tracker file names (or ``step``); None where there is no checkpoint.

    Raises:
        CheckpointError: the tracker is unreadable or the checkpoint is not complete.
    """
    if root is None or not (Path(root) / TRACKER).is_file():
        return None
    text = str(step) if step is not None else (Path(root) / TRACKER).read_text().strip()
    if not text.isdigit():
        raise CheckpointError(f"{Path(root) / TRACKER} holds {text!r}, not an iteration")
    folder = iteration_dir(root, int(text))
    if not (folder / "metadata.json").is_file():
        raise CheckpointError(f"{folder} is not a complete checkpoint (no metadata.json)")
    return int(text)


def save(
    args: Namespace, state: TrainState, root: str | Path, iteration: int, extra: dict[str, Any]
) -> None:
    """Write a checkpoint; collective. ``extra`` (plain values) comes back from :func:`load`."""
    final = iteration_dir(root, iteration)
    partial = final.with_name(f".{final.name}.partial")
    if dist.get_rank() == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    dist.barrier()
    content = _sharded_state(state, loading=False, with_rng=not args.no_save_rng)
    content.update(
        iteration=iteration,
        has_rng=not args.no_save_rng,
        layout=_layout(args),
        distributed_optimizer=args.use_distributed_optimizer,
        slime=extra,
    )
    dist_checkpointing.save(content, str(partial), sharded_strategy=InProcessSaveStrategy())
    dist.barrier()
    if dist.get_rank() == 0:
        _put_in_place(partial, final)
        _write_tracker(Path(root), iteration)
    dist.barrier()


def load(args: Namespace, state: TrainState, root: str | Path, iteration: int) -> dict[str, Any]:
    """Restore what :func:`save` wrote, on the same or another parallel layout; returns its
    ``extra``.

    The random state is restored on the same layout only: on another there is nothing it could be.

    Raises:
        CheckpointError: optimizer state of the distributed optimizer for the plain one, or the
            reverse.
    """
    folder = str(iteration_dir(root, iteration))
    common = dist_checkpointing.load_common_state_dict(folder)
    if state.optimizer is not None:
        _check_optimizer_kind(args, folder, common)
    same_layout = common.get("layout") == _layout(args)
    with_rng = same_layout and common.get("has_rng", False) and not args.no_load_rng
    wanted = _sharded_state(state, loading=True, with_rng=with_rng)
    loaded = dist_checkpointing.load(wanted, folder)
    for key, chunk in _keyed(state.model).items():
        chunk.module.load_state_dict(loaded[key], strict=False)
    if state.optimizer is not None:
        state.optimizer.load_state_dict(loaded["optimizer"])
    if state.scheduler is not None and "opt_param_scheduler" in common:
        state.scheduler.load_state_dict(common["opt_param_scheduler"])
    if with_rng and "rng_state" in loaded:
        _set_rng_state(loaded["rng_state"])
    return dict(common.get("slime", {}))


def _check_optimizer_kind(args: Namespace, folder: str, common: dict[str, Any]) -> None:
    if "optimizer" not in common:
        raise CheckpointError(
            f"{folder} holds no optimizer state; use --no-load-optim to start one anew"
        )
    saved = common.get("distributed_optimizer")
    if saved is not None and saved != args.use_distributed_optimizer:
        raise CheckpointError(
            f"{folder} was saved with use_distributed_optimizer={saved}, this run has "
            f"{args.use_distributed_optimizer}; use the same, or --no-load-optim"
        )


def _keyed(model: list[DistributedDataParallel]) -> dict[str, DistributedDataParallel]:
    """Megatron's names: `model`, or `model0`, `model1` with virtual stages."""
    if len(model) == 1:
        return {"model": model[0]}
    return {f"model{index}": chunk for index, chunk in enumerate(model)}


def _sharded_state(state: TrainState, loading: bool, with_rng: bool) -> dict[str, Any]:
    metadata = {
        "distrib_optim_sharding_type": "fully_reshardable",
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
        "chained_optim_avoid_prefix": True,
        "singleton_local_shards": False,
    }
    content: dict[str, Any] = {
        key: chunk.module.sharded_state_dict(metadata=metadata)
        for key, chunk in _keyed(state.model).items()
    }
    if state.optimizer is not None:
        content["optimizer"] = state.optimizer.sharded_state_dict(
            dict(content), is_loading=loading, metadata=metadata
        )
    if state.scheduler is not None and not loading:
        content["opt_param_scheduler"] = state.scheduler.state_dict()
    if with_rng and state.optimizer is not None:
        content["rng_state"] = _sharded_rng_state()
    return content


def _layout(args: Namespace) -> dict[str, int]:
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "world_size")
    return {name: int(getattr(args, name)) for name in names}


def _sharded_rng_state() -> ShardedObject:
    """Generators of this rank; the same for the ranks of a data-parallel group."""
    kind, keys, position, has_gauss, cached = np.random.get_state()
    state = {
        "python": random.getstate(),
        "numpy": (
            kind,
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            position,
            has_gauss,
            cached,
        ),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(),
        "tracker": tensor_parallel.get_cuda_rng_tracker().get_states(),
    }
    return ShardedObject(
        "rng_state",
        state,
        (
            parallel_state.get_pipeline_model_parallel_world_size(),
            parallel_state.get_tensor_model_parallel_world_size(),
        ),
        (
            parallel_state.get_pipeline_model_parallel_rank(),
            parallel_state.get_tensor_model_parallel_rank(),
        ),
        replica_id=parallel_state.get_data_parallel_rank(with_context_parallel=True),
    )


def _set_rng_state(state: dict[str, Any]) -> None:
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state(state["cuda"])
    tensor_parallel.get_cuda_rng_tracker().set_states(state["tracker"])


def _put_in_place(partial: Path, final: Path) -> None:
    """Rename, keeping what others (the data source) have put into the folder."""
    if final.exists():
        for entry in final.iterdir():
            if not entry.name.endswith(_OURS):
                os.replace(entry, partial / entry.name)
        shutil.rmtree(final)
    os.replace(partial, final)
    fsync_folder(final.parent)


def _write_tracker(root: Path, iteration: int) -> None:
    temporary = root / f".{TRACKER}.partial"
    with temporary.open("w") as file:
        file.write(f"{iteration}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, root / TRACKER)
    fsync_folder(root)


def fsync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
