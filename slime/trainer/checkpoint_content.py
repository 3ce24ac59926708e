"""What a checkpoint holds: model, optimizer, schedule, random state as Megatron's sharded state."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

# How torch's Adam computes, the same numbers one way or another.
_ADAM_SETTINGS = ("fused", "foreach", "capturable")
# Those of a parameter group that are of this machine; most are HybridDeviceOptimizer's.
_MACHINE_SETTINGS = (
    *_ADAM_SETTINGS,
    "cpu_optimizer_cls",
    "gpu_optimizer_cls",
    "offload_fraction",
    "param_update_in_fp32",
    "pin_cpu_grads",
    "pin_cpu_params",
    "overlap_cpu_optimizer_d2h_h2d",
)


@dataclass(frozen=True)
class TrainState:
    """What is saved: the wrapped chunks; optimizer and scheduler, or None if not wanted."""

    model: list[DistributedDataParallel]
    optimizer: MegatronOptimizer | None
    scheduler: OptimizerParamScheduler | None


def keyed(model: list[DistributedDataParallel]) -> dict[str, DistributedDataParallel]:
    """Megatron's names: `model`, or `model0`, `model1` with virtual stages."""
    if len(model) == 1:
        return {"model": model[0]}
    return {f"model{index}": chunk for index, chunk in enumerate(model)}


def sharded_state(state: TrainState, loading: bool, with_rng: bool) -> dict[str, Any]:
    """What `dist_checkpointing` saves or fills; the random state only with an optimizer."""
    metadata = {
        "distrib_optim_sharding_type": "fully_reshardable",
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
        "chained_optim_avoid_prefix": True,
        "singleton_local_shards": False,
    }
    content: dict[str, Any] = {
        key: chunk.module.sharded_state_dict(metadata=metadata)
        for key, chunk in keyed(state.model).items()
    }
    if state.optimizer is not None:
        with _padding_kept(state.optimizer):
            content["optimizer"] = state.optimizer.sharded_state_dict(
                dict(content), is_loading=loading, metadata=metadata
            )
        _drop_machine_settings(content["optimizer"])
    if state.scheduler is not None and not loading:
        content["opt_param_scheduler"] = state.scheduler.state_dict()
    if with_rng and state.optimizer is not None:
        content["rng_state"] = _sharded_rng_state()
    return content


@contextmanager
def _padding_kept(optimizer: MegatronOptimizer) -> Iterator[None]:
    """Inside, moments that the distributed optimizer gathers lie where Megatron looks for them.

    It joins buckets without the padding at their ends, and then cuts parameters out at their places
    in the padded buffer: with several buckets (two stages that share an embedding, overlapped
    reduction) and a size that is no multiple of 128, those after the first bucket are wrong.
    """
    parts = [part for part in optimizer.chained_optimizers if hasattr(part, "gbuf_ranges")]
    buffers = [buffer for part in parts for buffer in part.buffers]
    padded = [(buffer, buffer.numel) for buffer in buffers]
    padded += [(bucket, bucket.grad_data.numel()) for b in buffers for bucket in b.buckets]
    before = [owner.numel_unpadded for owner, _ in padded]
    try:
        for owner, numel in padded:
            owner.numel_unpadded = numel
        yield
    finally:
        for (owner, _), numel in zip(padded, before, strict=True):
            owner.numel_unpadded = numel


def _drop_machine_settings(content: Any) -> None:
    """Where the optimizer's state lives (some of it as classes), and how it computes, is the
    loading run's business.
    """
    if not isinstance(content, dict):
        return
    for group in content.get("param_groups", ()):
        for name in _MACHINE_SETTINGS:
            group.pop(name, None)
    for value in content.values():
        _drop_machine_settings(value)


@contextmanager
def adam_settings_kept(optimizer: MegatronOptimizer) -> Iterator[None]:
    """Inside, a checkpoint's parameter groups take the place of the optimizer's; Adam goes on as
    this machine runs it, also where the checkpoint says otherwise or, of an older run, nothing.
    """
    parts = [part for part in optimizer.chained_optimizers if part.optimizer is not None]
    own = [
        [
            {k: group[k] for k in _ADAM_SETTINGS if k in group}
            for group in part.optimizer.param_groups
        ]
        for part in parts
    ]
    yield
    for part, settings in zip(parts, own, strict=True):
        for group, kept in zip(part.optimizer.param_groups, settings, strict=True):
            group.update(kept)


def layout(args: Namespace) -> dict[str, int]:
    """The sizes by which ranks are told apart; two runs with the same have the same ranks."""
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    names += ("expert_model_parallel_size", "expert_tensor_parallel_size", "world_size")
    return {name: int(getattr(args, name) or 0) for name in names}


def _sharded_rng_state() -> ShardedObject:
    """Generators of this rank."""
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
    return ShardedObject("rng_state", state, (dist.get_world_size(),), (dist.get_rank(),))


def set_rng_state(state: dict[str, Any]) -> None:
    """Put back what :func:`sharded_state` took of the generators."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state(state["cuda"])
    tensor_parallel.get_cuda_rng_tracker().set_states(state["tracker"])
