"""Metrics of train steps, from sums that every micro-batch reports, equal on every rank."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state


def reduce_train_step_metrics(
    losses_reduced: list[dict[str, Any]],
    *,
    calculate_per_token_loss: bool,
    step_global_batch_size: int,
    cp_size: int,
    dp_with_cp_group: dist.ProcessGroup,
) -> dict[str, float]:
    """Sum what the micro-batches of all ranks of ``dp_with_cp_group`` report, and divide once.

    Args:
        losses_reduced: per micro-batch {"keys": names, "values": [1 + len(keys)]}, where values[0]
            is the number of unmasked tokens and the rest are sums over samples.
        calculate_per_token_loss: divide by all unmasked tokens, otherwise by the number of
            rollouts.
        cp_size: every context-parallel rank counts whole samples in values[0].
    """
    keys = losses_reduced[0]["keys"]
    values = torch.stack([report["values"] for report in losses_reduced]).sum(0)
    if dp_with_cp_group.size() > 1:
        dist.all_reduce(values, group=dp_with_cp_group)
    tokens, *sums = values.tolist()
    count = tokens / cp_size if calculate_per_token_loss else step_global_batch_size
    return {key: value / max(count, 1) for key, value in zip(keys, sums, strict=True)}


def from_last_stage(metrics: dict[str, float] | None) -> dict[str, float]:
    """Give the last pipeline stage's metrics to every stage."""
    group = parallel_state.get_pipeline_model_parallel_group()
    if group.size() == 1:
        assert metrics is not None
        return metrics
    box = [metrics]
    dist.broadcast_object_list(
        box, src=parallel_state.get_pipeline_model_parallel_last_rank(), group=group
    )
    assert box[0] is not None
    return box[0]


def rollout_log_metric_contribution(
    per_rank_reducer_sum: float, *, cp_size: int, num_rollouts_in_rollout: int, dp_size: int
) -> tuple[float, float]:
    """(numerator, denominator) of one rank, so that sum / sum over the DP x CP ranks is the mean
    over rollouts.

    A context-parallel rank has summed its part of every sample, so its numerators add up; the
    rollouts are counted once over all dp_size * cp_size ranks.
    """
    return per_rank_reducer_sum, num_rollouts_in_rollout / (dp_size * cp_size)


def gather_and_reduce_log_dict(
    log_dict: dict[str, Any], *, dp_size: int, dp_src_rank: int, dp_group: dist.ProcessGroup
) -> dict[str, float] | None:
    """Combine {name: value or (numerator, denominator)} of all ranks on ``dp_src_rank``; None
    elsewhere.

    Pairs are summed and divided; plain values are averaged.
    """
    is_source = dist.get_rank() == dp_src_rank
    gathered: list[Any] | None = [None] * dp_size if is_source else None
    dist.gather_object(log_dict, gathered, dst=dp_src_rank, group=dp_group)
    if gathered is None:
        return None
    result = {}
    for key in log_dict:
        values = [entry[key] for entry in gathered]
        if isinstance(values[0], tuple):
            numerator, denominator = (sum(part) for part in zip(*values, strict=True))
            result[key] = numerator / denominator if denominator else 0.0
        else:
            result[key] = sum(values) / dp_size
    return result
