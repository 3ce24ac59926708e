"""Rollout data as named tensors beside plain values: what dumps of it are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from slime.trainer.buckets import own_copy


def split_lists(data: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """(per-token lists as tensors ``KEY/SAMPLE`` in host memory, everything else)."""
    tensors: dict[str, torch.Tensor] = {}
    plain = {}
    for key, value in data.items():
        if isinstance(value, list) and value and isinstance(value[0], (torch.Tensor, np.ndarray)):
            parts = map(torch.as_tensor, value)
            tensors |= {f"{key}/{i}": own_copy(part) for i, part in enumerate(parts)}
        else:
            plain[key] = value
    return tensors, plain


def join_lists(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, list[torch.Tensor]]:
    """The lists that :func:`split_lists` took apart."""
    lists: dict[str, dict[int, torch.Tensor]] = {}
    for name, tensor in tensors:
        key, _, place = name.rpartition("/")
        lists.setdefault(key, {})[int(place)] = tensor
    return {key: [parts[i] for i in range(len(parts))] for key, parts in lists.items()}
