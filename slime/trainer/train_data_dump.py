"""What a rank trained on, as a file: --save-debug-train-data, published as
`slime.observability.train_data_utils`.

A safetensors file: per-token lists as `KEY/SAMPLE`, everything else as JSON in its metadata.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from safetensors import safe_open
from safetensors.torch import save_file

from slime.trainer.cp_utils import all_gather_with_cp
from slime.trainer.sample_lists import join_lists, split_lists

# Per-response-token lists of which a context-parallel rank holds a part.
_PER_TOKEN = (
    "log_probs",
    "ref_log_probs",
    "teacher_log_probs",
    "rollout_log_probs",
    "entropy",
    "values",
    "advantages",
    "returns",
    "kl",
)
GatherTensor = Callable[[torch.Tensor, int, int], torch.Tensor]


def restore_context_parallel_fields_to_cpu(
    rollout_data: dict[str, Any], gather_tensor: GatherTensor, *, keep_restored: bool
) -> dict[str, Any] | None:
    """The data with whole responses instead of a rank's parts, in host memory.

    Args:
        rollout_data: a rank's; it stays as it is.
        gather_tensor: (part, total_length, response_length) -> the whole; collective.
        keep_restored: whether this rank wants the result; all have to gather.

    Returns:
        The copy, or None where it is not kept.
    """
    restored = dict(rollout_data)
    lengths = list(
        zip(rollout_data["total_lengths"], rollout_data["response_lengths"], strict=True)
    )
    for key in _PER_TOKEN:
        values = rollout_data.get(key)
        if not isinstance(values, list) or not values or not torch.is_tensor(values[0]):
            continue
        whole = []
        for value, (total, response) in zip(values, lengths, strict=True):
            gathered = gather_tensor(value, total, response)
            whole.append(gathered.detach().cpu() if keep_restored else None)
        restored[key] = whole
    return restored if keep_restored else None


def save_debug_train_data(
    args: Namespace, *, rollout_id: int, rollout_data: dict[str, Any]
) -> None:
    """Write this rank's train data to ``args.save_debug_train_data``; without it do nothing.

    ``{rollout_id}`` and ``{rank}`` in the path are filled in. One rank of those that train on the
    same samples writes: the last pipeline stage, which has what was computed. Every rank calls it.
    """
    if not args.save_debug_train_data or not parallel_state.is_pipeline_last_stage(
        ignore_virtual=True
    ):
        return
    first = parallel_state.get_context_parallel_rank() == 0
    data = restore_context_parallel_fields_to_cpu(
        rollout_data, all_gather_with_cp, keep_restored=first
    )
    if data is None or parallel_state.get_tensor_model_parallel_rank() != 0:
        return
    rank = dist.get_rank()
    path = Path(args.save_debug_train_data.format(rollout_id=rollout_id, rank=rank))
    if "{rank}" not in args.save_debug_train_data and rank > 0:
        path = path.with_name(f"{path.name}_{rank}")
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors, plain = split_lists(data)
    save_file(tensors, path, metadata={"plain": json.dumps(plain, default=_jsonable)})


def load_debug_train_data(path: str | Path) -> dict[str, Any]:
    """What :func:`save_debug_train_data` wrote."""
    with safe_open(path, framework="pt") as file:
        data: dict[str, Any] = json.loads(file.metadata()["plain"])
        names = file.keys()
        return data | join_lists((name, file.get_tensor(name)) for name in names)


def _jsonable(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
