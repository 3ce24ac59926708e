"""Buckets of tensors as bytes, and where each tensor lies in them.

Nothing here imports torch distributed or an engine: the loader inside the engines uses it too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

_ALIGN = 64  # any dtype can be viewed at such an offset


@dataclass(frozen=True)
class Entry:
    """A tensor in a bucket: `start` and `end` count bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def layout(named_tensors: Sequence[tuple[str, torch.Tensor]]) -> tuple[list[Entry], int]:
    """Where each tensor goes, and the bytes of all."""
    entries, start = [], 0
    for name, tensor in named_tensors:
        end = start + tensor.numel() * tensor.element_size()
        dtype = str(tensor.dtype).removeprefix("torch.")
        entries.append(Entry(name, dtype, tuple(tensor.shape), start, end))
        start = -(-end // _ALIGN) * _ALIGN
    return entries, max(start, 1)


def view(flat: torch.Tensor, entry: Entry) -> torch.Tensor:
    """The tensor of an entry in the bytes of its bucket; no copy."""
    part = flat[entry.start : entry.end].view(getattr(torch, entry.dtype))
    return part.reshape(entry.shape)


def fill(flat: torch.Tensor, entries: Sequence[Entry], tensors: Sequence[torch.Tensor]) -> None:
    """Copy the tensors to their places in `flat` (bytes)."""
    for entry, tensor in zip(entries, tensors, strict=True):
        view(flat, entry).copy_(tensor.detach())
