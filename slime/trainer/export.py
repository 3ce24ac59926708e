"""Whole Hugging Face tensors from the distributed model."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel

from slime.trainer.buckets import NamedTensor
from slime.trainer.hf_weights import (
    family_of,
    named_global_parameters,
    partition_dim,
    tensor_group,
)
from slime.trainer.megatron_to_hf.convert import convert_to_hf
from slime.trainer.param_names import OUTPUT_LAYER, canonical, is_expert, is_gated, with_offsets
from slime.trainer.tensor_layout import unshard


@dataclass(frozen=True)
class Whole:
    """What a rank's parameter is a part of.

    Attributes:
        names: one, or for an expert those that stand at its place on all expert-parallel ranks.
        shape: of each, whole.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype


def _whole(name: str, param: Any, num_experts: int | None) -> Whole:
    shape = list(param.shape)
    dim = partition_dim(name, param)
    if dim is not None:
        shape[dim] *= tensor_group(name).size()
    names = [name]
    if is_expert(name):
        group = parallel_state.get_expert_model_parallel_group()
        each = (num_experts or 0) // group.size()
        names = [with_offsets(name, 0, (r - group.rank()) * each) for r in range(group.size())]
    return Whole(tuple(names), tuple(shape), param.dtype)


def gather_parameter(name: str, param: Any) -> list[torch.Tensor]:
    """The whole parameter (of an expert: those at its place on all ranks); collective."""
    whole, dim = param.detach(), partition_dim(name, param)
    if dim is not None:
        whole = unshard(_all_gather(whole, tensor_group(name)), dim, gated=is_gated(name))
    if not is_expert(name):
        return [whole]
    return _all_gather(whole, parallel_state.get_expert_model_parallel_group())


def _all_gather(tensor: torch.Tensor, group: dist.ProcessGroup) -> list[torch.Tensor]:
    if group.size() == 1:
        return [tensor]
    shares = [torch.empty_like(tensor) for _ in range(group.size())]
    dist.all_gather(shares, tensor.contiguous(), group=group)
    return shares


@torch.no_grad()
def whole_parameters(model: list[DistributedDataParallel]) -> Iterator[NamedTensor]:
    """(global Megatron name, whole parameter) of the whole model, on every rank; collective.

    One parameter at a time is whole: memory does not grow with the model.
    """
    num_experts = model[0].config.num_moe_experts
    own = [
        (name, param, _whole(name, param, num_experts))
        for name, param in named_global_parameters(model)
    ]
    group = parallel_state.get_pipeline_model_parallel_group()
    stages: list[list[Whole]] = [[] for _ in range(group.size())]
    dist.all_gather_object(stages, [whole for _, _, whole in own], group=group)
    device = own[0][1].device
    sent: set[str] = set()
    for stage, wholes in enumerate(stages):
        source = dist.get_global_rank(group, stage)
        for index, whole in enumerate(wholes):
            if sent.issuperset(whole.names):  # the last stage's copy of tied embeddings
                continue
            sent.update(whole.names)
            if group.rank() == stage:
                tensors = gather_parameter(*own[index][:2])
            else:
                tensors = [
                    torch.empty(whole.shape, dtype=whole.dtype, device=device) for _ in whole.names
                ]
            for name, tensor in zip(whole.names, tensors, strict=True):
                if group.size() > 1:
                    dist.broadcast(tensor, src=source, group=group)
                yield name, tensor


def named_hf_tensors(
    args: Namespace,
    model: list[DistributedDataParallel],
    quantization_config: dict[str, Any] | None = None,
) -> Iterator[NamedTensor]:
    """(Hugging Face name, whole tensor) of the whole model, on every rank; collective.

    Args:
        quantization_config: quantise like this (see :mod:`slime.trainer.quantize`).
    """
    family, tied = family_of(args), not args.untie_embeddings_and_output_weights
    for name, param in whole_parameters(model):
        if tied and canonical(name) == OUTPUT_LAYER:
            continue
        yield from convert_to_hf(args, family, name, param, quantization_config)
