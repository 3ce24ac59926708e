"""A tensor-parallel rank's share of a whole parameter, by cutting it up: the readers' oracle."""

from __future__ import annotations

import torch
from torch import Tensor


def shard(full: Tensor, dim: int, rank: int, size: int, gated: bool = False) -> Tensor:
    """Rank's share of a full parameter along ``dim``; ``gated``: of gate and up separately."""
    if size == 1:
        return full
    if gated:
        return torch.cat([half.chunk(size, dim)[rank] for half in full.chunk(2, dim)], dim)
    return full.chunk(size, dim)[rank]
