"""Named tensors in lists of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

NamedTensor = tuple[str, torch.Tensor]


def own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor in host memory that shares nothing (else safetensors refuses it)."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())


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
