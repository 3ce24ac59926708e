"""Layouts of fused and tensor-parallel parameters: merge, split, shard and gather. Pure tensor
functions.

Megatron fuses q, k and v group by group ([q of group 0, k 0, v 0, q of group 1, ...]), so that a
plain chunk along the first dimension is a rank's share. Gate and up are one matrix, of which a rank
holds its share of gate followed by its share of up.
"""

from __future__ import annotations

import torch
from torch import Tensor


def merge_qkv(q: Tensor, k: Tensor, v: Tensor, groups: int) -> Tensor:
    """[heads d, ...], [groups d, ...] twice -> [(heads + 2 groups) d, ...], group by group."""
    rest = q.shape[1:]
    parts = [x.reshape(groups, -1, *rest) for x in (q, k, v)]
    return torch.cat(parts, dim=1).reshape(-1, *rest)


def split_qkv(fused: Tensor, groups: int, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """The inverse of :func:`merge_qkv`."""
    rest = fused.shape[1:]
    grouped = fused.reshape(groups, heads // groups + 2, -1, *rest)
    q, k, v = grouped[:, :-2], grouped[:, -2], grouped[:, -1]
    return tuple(x.reshape(-1, *rest) for x in (q, k, v))  # type: ignore[return-value]


def unshard(shares: list[Tensor], dim: int, gated: bool = False) -> Tensor:
    """The whole parameter from its shares along ``dim``; ``gated``: of gate and up separately."""
    if len(shares) == 1:
        return shares[0]
    if gated:
        halves = zip(*(share.chunk(2, dim) for share in shares), strict=True)
        return torch.cat([torch.cat(half, dim) for half in halves], dim)
    return torch.cat(shares, dim)
