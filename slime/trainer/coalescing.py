"""Sums of gradients over tensor-parallel ranks, in pieces of bounded size.

With sequence parallelism every rank has seen a part of the tokens, so the gradients of what all
ranks hold whole (norms, routers, the compressing projections of latent attention) are summed over
them after the backward pass. Megatron copies them all into one new tensor first, 4 GB for
DeepSeek-V3. Here no copy is larger than :data:`MAX_BYTES`. With two ranks the sums are the same bit
for bit; with more, the order of additions in a collective may depend on its size.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.utils import get_attr_wrapped_model, get_tensor_model_parallel_group_if_none
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from slime.trainer.buckets import NamedTensor, buckets

MAX_BYTES = 64 * 1024**2
"""Of one copy; collectives of that size use a network as well as larger ones."""

_REPLACED = "_allreduce_non_tensor_model_parallel_grads"


@contextmanager
def bounded_coalescing() -> Iterator[None]:
    """Inside, Megatron's ``finalize_model_grads`` sums by :func:`sum_replicated_gradients`."""
    # The package has a function of this name too, which hides the module.
    module: Any = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    original = getattr(module, _REPLACED)
    setattr(module, _REPLACED, sum_replicated_gradients)
    try:
        yield
    finally:
        setattr(module, _REPLACED, original)


def sum_replicated_gradients(
    model: list[torch.nn.Module], config: Any, tp_group: dist.ProcessGroup | None = None
) -> None:
    """Sum, or average where a parameter asks for it, in place; chosen as Megatron chooses."""
    group = get_tensor_model_parallel_group_if_none(tp_group)
    if group.size() <= 1:
        return
    summed: list[NamedTensor] = []
    averaged: list[NamedTensor] = []
    for chunk in model:
        for name, param in get_attr_wrapped_model(chunk, "named_parameters")():
            if not param.requires_grad:
                continue
            if getattr(param, "average_gradients_across_tp_domain", False):
                averaged.append((name, param.main_grad))
            elif (config.sequence_parallel and getattr(param, "sequence_parallel", False)) or (
                config.qk_layernorm and ("q_layernorm" in name or "k_layernorm" in name)
            ):
                summed.append((name, param.main_grad))
    all_reduce_in_pieces(summed, dist.ReduceOp.SUM, group, MAX_BYTES)
    all_reduce_in_pieces(averaged, dist.ReduceOp.AVG, group, MAX_BYTES)


def all_reduce_in_pieces(
    tensors: Iterable[NamedTensor], op: Any, group: dist.ProcessGroup, max_bytes: int
) -> None:
    """All-reduce every tensor in place, small ones together.

    Args:
        tensors: contiguous, the same shapes in the same order on every rank.
        max_bytes: of the copy that a collective needs. A larger tensor is reduced where it lies.
    """
    for bucket in buckets(tensors, max_bytes):
        piece = [tensor for _, tensor in bucket]
        if len(piece) == 1:
            dist.all_reduce(piece[0], op=op, group=group)
            continue
        together = _flatten_dense_tensors(piece)
        dist.all_reduce(together, op=op, group=group)
        for tensor, reduced in zip(piece, _unflatten_dense_tensors(together, piece), strict=True):
            tensor.copy_(reduced)
