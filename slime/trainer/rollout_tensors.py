"""One rank's rollout data, as tensors on the training device, with what the reducers need."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state

from slime.trainer.cp_utils import slice_log_prob_with_cp

RolloutBatch = dict[str, Any]

# Per-response-token values; under context parallelism a rank keeps its part.
_PER_TOKEN = ("rollout_log_probs", "teacher_log_probs")


def tensorize_rollout_data_for_training(rollout_data: RolloutBatch) -> None:
    """Turn token ids, masks and per-token values into tensors, in place."""
    device = (
        torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
    )
    rollout_data["tokens"] = [
        torch.as_tensor(t, dtype=torch.long, device=device) for t in rollout_data["tokens"]
    ]
    rollout_data["loss_masks"] = [
        torch.as_tensor(m, dtype=torch.float32, device=device) for m in rollout_data["loss_masks"]
    ]
    lengths = list(
        zip(rollout_data["total_lengths"], rollout_data["response_lengths"], strict=True)
    )
    for key in _PER_TOKEN:
        if rollout_data.get(key) is None:
            rollout_data.pop(key, None)
            continue
        values = [torch.as_tensor(v, dtype=torch.float32, device=device) for v in rollout_data[key]]
        rollout_data[key] = [
            slice_log_prob_with_cp(value, total, response)
            for value, (total, response) in zip(values, lengths, strict=True)
        ]


def prepare(args: Namespace, rollout_data: RolloutBatch) -> RolloutBatch:
    """A tensorised copy of what the rollout side sent, checked, with ``sample_denoms`` added.

    Raises:
        ValueError: lists of different lengths, a token id outside the vocabulary, a response of no
            tokens or as long as its sample.
    """
    batch = dict(rollout_data)
    _check(args, batch)
    tensorize_rollout_data_for_training(batch)
    batch["sample_denoms"] = _sample_denoms(batch)
    return batch


def _check(args: Namespace, batch: RolloutBatch) -> None:
    count = len(batch["tokens"])
    for key in ("total_lengths", "response_lengths", "loss_masks", "rewards"):
        if len(batch[key]) != count:
            raise ValueError(f"rollout data: {len(batch[key])} {key} for {count} samples")
    vocab_size = args.hf_architecture["vocab_size"]
    for index, (tokens, total, response, mask) in enumerate(
        zip(
            batch["tokens"],
            batch["total_lengths"],
            batch["response_lengths"],
            batch["loss_masks"],
            strict=True,
        )
    ):
        if len(tokens) != total or not 0 < response < total or len(mask) != response:
            raise ValueError(
                f"rollout data, sample {index}: {len(tokens)} tokens, total_length {total}, "
                f"response_length {response}, {len(mask)} mask values; need 0 < response < total"
            )
        if np.min(tokens) < 0 or np.max(tokens) >= vocab_size:
            raise ValueError(f"rollout data, sample {index}: token ids outside 0..{vocab_size - 1}")


def _sample_denoms(batch: RolloutBatch) -> list[float]:
    """Mask sum of the rollout each sample belongs to: a rollout that fanned out counts once.

    Its samples may lie on several data-parallel ranks, so the sums are exchanged by rollout id.
    """
    own = (
        torch.stack([mask.sum() for mask in batch["loss_masks"]]).tolist()
        if batch["loss_masks"]
        else []
    )
    rollout_ids = batch.get("rollout_ids")
    if rollout_ids is None:
        return own
    everyone: list[Any] = [None] * parallel_state.get_data_parallel_world_size()
    mine = list(zip(rollout_ids, own, strict=True))
    if len(everyone) > 1:
        dist.all_gather_object(everyone, mine, group=parallel_state.get_data_parallel_group())
    else:
        everyone = [mine]
    sums: dict[Any, float] = {}
    for rank_pairs in everyone:
        for rollout_id, tokens in rank_pairs:
            sums[rollout_id] = sums.get(rollout_id, 0.0) + tokens
    return [sums[rollout_id] for rollout_id in rollout_ids]
