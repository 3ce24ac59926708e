"""Whole Hugging Face tensors from the distributed model, in buckets of bounded size."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel

from slime.trainer.hf_weights import family_of, is_gated, named_global_parameters
from slime.trainer.megatron_to_hf.convert import convert_to_hf
from slime.trainer.param_names import OUTPUT_LAYER, canonical
from slime.trainer.tensor_layout import unshard

NamedTensor = tuple[str, torch.Tensor]


def gather_parameter(name: str, param: Any) -> torch.Tensor:
    """The whole parameter from the tensor-parallel ranks' shares; collective over them."""
    group = parallel_state.get_tensor_model_parallel_group()
    if group.size() == 1 or not getattr(param, "tensor_model_parallel", False):
        return param.detach()
    shares = [torch.empty_like(param) for _ in range(group.size())]
    dist.all_gather(shares, param.detach().contiguous(), group=group)
    return unshard(shares, param.partition_dim, gated=is_gated(name))


@torch.no_grad()
def whole_parameters(model: list[DistributedDataParallel]) -> Iterator[NamedTensor]:
    """(global Megatron name, whole parameter) of the whole model, on every rank; collective."""
    local = dict(named_global_parameters(model))
    group = parallel_state.get_pipeline_model_parallel_group()
    if group.size() == 1:
        for name, param in local.items():
            yield name, gather_parameter(name, param)
        return
    own = {name: gather_parameter(name, param) for name, param in local.items()}
    stages: list[dict[str, tuple[torch.Size, torch.dtype]]] = [{} for _ in range(group.size())]
    dist.all_gather_object(stages, {n: (p.shape, p.dtype) for n, p in own.items()}, group=group)
    sent = set()
    for stage, shapes in enumerate(stages):
        source = dist.get_global_rank(group, stage)
        for name, (shape, dtype) in shapes.items():
            if name in sent:  # the last stage's copy of tied embeddings
                continue
            sent.add(name)
            device = next(iter(own.values())).device
            tensor = (
                own[name]
                if dist.get_rank() == source
                else torch.empty(shape, dtype=dtype, device=device)
            )
            dist.broadcast(tensor, src=source, group=group)
            yield name, tensor


def named_hf_tensors(
    args: Namespace, model: list[DistributedDataParallel]
) -> Iterator[NamedTensor]:
    """(Hugging Face name, whole tensor) of the whole model, on every rank; collective."""
    family, tied = family_of(args), not args.untie_embeddings_and_output_weights
    for name, param in whole_parameters(model):
        if tied and canonical(name) == OUTPUT_LAYER:
            continue
        yield from convert_to_hf(args, family, name, param)


def buckets(tensors: Iterable[NamedTensor], max_bytes: int) -> Iterator[list[NamedTensor]]:
    """Group consecutive tensors into lists of at most ``max_bytes``; a larger tensor is alone."""
    bucket: list[NamedTensor] = []
    size = 0
    for name, tensor in tensors:
        nbytes = tensor.numel() * tensor.element_size()
        if bucket and size + nbytes > max_bytes:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, tensor))
        size += nbytes
    if bucket:
        yield bucket
