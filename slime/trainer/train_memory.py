"""Build a trainer's tensors in the regions of a memory saver."""

from __future__ import annotations

from argparse import Namespace

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

from slime.trainer.deep_ep import protect_deep_ep_buffers
from slime.trainer.memory_saver import MemorySaver
from slime.trainer.model_provider import build_model_chunks
from slime.trainer.optimizer import allocate_moments, build_optimizer, to_half_precision, wrap_model
from slime.trainer.regions import GRADIENTS, OPTIMIZER, WEIGHTS

Built = tuple[list[DistributedDataParallel], MegatronOptimizer, OptimizerParamScheduler]


def build_in_regions(args: Namespace, memory: MemorySaver, role: str = "actor") -> Built:
    """Model, optimizer and schedule, each tensor in the region that its use allows to pause."""
    if args.offload_train:
        protect_deep_ep_buffers()
    with memory.region(WEIGHTS):
        chunks = to_half_precision(args, build_model_chunks(args, role))
    with memory.region(GRADIENTS):
        model = wrap_model(args, chunks)
    if args.offload_train and args.device == "cuda":
        _move_weights_out_of_buffers_of_gradients(model, memory)
    with memory.region(OPTIMIZER):
        optimizer, scheduler = build_optimizer(args, model)
        if args.offload_train:
            allocate_moments(optimizer)
    return model, optimizer, scheduler


def _move_weights_out_of_buffers_of_gradients(
    model: list[DistributedDataParallel], memory: MemorySaver
) -> None:
    """With the distributed optimizer the wrapper has put the weights beside the gradients."""
    for buffer in (b for chunk in model for b in chunk.buffers + chunk.expert_parallel_buffers):
        if buffer.param_data is None:
            continue
        buffer.offload_to_cpu(move_params=True, move_grads=False)
        with memory.region(WEIGHTS):
            buffer.reload_from_cpu(move_params=True, move_grads=False)
        torch.cuda.synchronize()
        buffer.param_data_cpu = None
