"""Steps, micro-batches and data-parallel ranks of one rollout's samples: pack first, distribute
second.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slime.schedules.flops import calculate_fwd_flops
from slime.schedules.packing import balanced_pack, expand_bins_by_splitting, first_fit_pack
from slime.schedules.rank_moves import move_between_ranks
from slime.schedules.seqlen_balancing import get_seqlen_balanced_partitions

_LITTLE_ROOM = 0.1  # of a mean sequence, per micro-batch

DpSchedule = tuple[list[list[int]], list[list[list[int]]], list[int], list[int]]


def build_dp_schedule(
    args: Any,
    train_parallel_config: dict[str, int],
    total_lengths: list[int],
    *,
    global_batch_size: int | Sequence[int],
    rollout_indices: list[int],
) -> DpSchedule:
    """Which rank trains which samples, in which micro-batches, in which step.

    A step takes `global_batch_size` whole rollouts in order of appearance; a rollout that fanned
    out into several samples stays in one step. With `--use-dynamic-batch-size` a micro-batch holds
    at most max_tokens_per_gpu * cp_size tokens (only a sample that alone exceeds it stands above,
    alone), otherwise at most micro_batch_size samples. Within a step every rank has the same number
    of micro-batches, a multiple of microbatch_group_size_per_vp_stage with virtual pipeline stages.
    Every sample is trained exactly once.

    Args:
        args: use_dynamic_batch_size, max_tokens_per_gpu, micro_batch_size, balance_data,
            balance_by_flops (and the model's sizes for the latter).
        train_parallel_config: dp_size, and cp_size, vpp_size, microbatch_group_size_per_vp_stage
            (default 1).
        total_lengths: Tokens (prompt + response) of each sample.
        global_batch_size: Rollouts per step; a sequence gives each step a number of its own.
        rollout_indices: Identity of the rollout of each sample.

    Returns:
        partitions: per rank, its samples' positions in `total_lengths`, in the order they are
            trained.
        micro_batch_indices: per rank, every micro-batch of all steps as positions in the rank's
            partition.
        num_microbatches: per step, micro-batches of each rank.
        global_batch_sizes: per step, rollouts over all ranks.

    Raises:
        ValueError: The numbers do not fit; nothing is ever dropped or padded instead.
    """
    layout = _Layout.read(train_parallel_config)
    order = _rollout_order(rollout_indices, len(total_lengths))
    sizes = _step_sizes(len(order), len(total_lengths), global_batch_size)
    steps = _steps(rollout_indices, order, sizes)
    weights = _weights(args, total_lengths)
    partitions: list[list[int]] = [[] for _ in range(layout.dp_size)]
    micro_batch_indices: list[list[list[int]]] = [[] for _ in range(layout.dp_size)]
    num_microbatches = []
    for number, step in enumerate(steps):
        micro_batches = _pack(args, layout, [total_lengths[i] for i in step])
        micro_batches = [list(map(step.__getitem__, members)) for members in micro_batches]
        _fill_ranks(micro_batches, layout, weights, number, len(step))
        num_microbatches.append(len(micro_batches) // layout.dp_size)
        ranks = _distribute(args, micro_batches, layout.dp_size, weights)
        if args.use_dynamic_batch_size and _balances(args):
            move_between_ranks(ranks, total_lengths, weights, _token_cap(args, layout))
        for rank, mine in enumerate(ranks):
            for members in mine:
                start = len(partitions[rank])
                partitions[rank].extend(members)
                micro_batch_indices[rank].append(list(range(start, start + len(members))))
    return partitions, micro_batch_indices, num_microbatches, sizes


@dataclass(frozen=True)
class _Layout:
    dp_size: int
    cp_size: int
    group: int
    """Micro-batches of a rank come in multiples of this (1 without virtual pipeline stages)."""

    @property
    def multiple(self) -> int:
        """Micro-batches of a step come in multiples of this."""
        return self.dp_size * self.group

    @classmethod
    def read(cls, config: dict[str, int]) -> "_Layout":
        group = config.get("microbatch_group_size_per_vp_stage") or 1
        interleaved = (config.get("vpp_size") or 1) > 1
        return cls(config["dp_size"], config.get("cp_size") or 1, group if interleaved else 1)


def _rollout_order(rollout_indices: Sequence[int], num_samples: int) -> dict[int, int]:
    """Place of each rollout in order of appearance."""
    if len(rollout_indices) != num_samples:
        raise ValueError(f"{len(rollout_indices)} rollout_indices for {num_samples} samples")
    return {rollout: place for place, rollout in enumerate(dict.fromkeys(rollout_indices))}


def _step_sizes(
    num_rollouts: int, num_samples: int, global_batch_size: int | Sequence[int]
) -> list[int]:
    """Rollouts of each step."""
    if not isinstance(global_batch_size, int):
        sizes = list(global_batch_size)
        if not sizes or min(sizes) < 1 or sum(sizes) != num_rollouts:
            raise ValueError(
                f"{num_rollouts} rollouts ({num_samples} samples) cannot be split into steps of "
                f"{sizes} rollouts, {sum(sizes)} in all"
            )
        return sizes
    if global_batch_size < 1 or not num_rollouts or num_rollouts % global_batch_size:
        raise ValueError(
            f"{num_rollouts} rollouts ({num_samples} samples) cannot be split into steps of "
            f"global_batch_size = {global_batch_size} rollouts; make rollout_batch_size * "
            "n_samples_per_prompt a multiple of it"
        )
    return [global_batch_size] * (num_rollouts // global_batch_size)


def _steps(
    rollout_indices: Sequence[int], order: dict[int, int], sizes: Sequence[int]
) -> list[list[int]]:
    """Samples of each step, in order: whole rollouts."""
    step_of = [step for step, size in enumerate(sizes) for _ in range(size)]
    steps: list[list[int]] = [[] for _ in sizes]
    for sample, rollout in enumerate(rollout_indices):
        steps[step_of[order[rollout]]].append(sample)
    return steps


def _weights(args: Any, total_lengths: Sequence[int]) -> Sequence[float]:
    if not getattr(args, "balance_by_flops", False):
        return total_lengths
    flops = {length: calculate_fwd_flops([length], args) for length in set(total_lengths)}
    return [flops[length] for length in total_lengths]


def _pack(args: Namespace, layout: _Layout, lengths: Sequence[int]) -> list[list[int]]:
    """Micro-batches of one step as positions in `lengths`."""
    if args.use_dynamic_batch_size:
        return _pack_under_cap(lengths, _token_cap(args, layout), layout.multiple)
    order = list(range(len(lengths)))
    if _balances(args):
        # Neighbours in length share a micro-batch, so micro-batches differ and can be balanced.
        order.sort(key=lambda i: (-lengths[i], i))
    size = args.micro_batch_size
    return [order[start : start + size] for start in range(0, len(order), size)]


def _token_cap(args: Any, layout: _Layout) -> int:
    if not args.max_tokens_per_gpu:
        raise ValueError("use_dynamic_batch_size needs max_tokens_per_gpu")
    return int(args.max_tokens_per_gpu) * layout.cp_size


def _pack_under_cap(lengths: Sequence[int], cap: int, multiple: int) -> list[list[int]]:
    """The fewest micro-batches that can be found, evenly filled where their number allows it."""
    if not lengths or min(lengths) <= 0 or cap <= 0:
        return first_fit_pack(lengths, cap)
    # No packing has fewer; a sequence above the cap fills a micro-batch.
    tokens = int(np.minimum(lengths, cap).sum())
    fewest = _round_up(-(-tokens // cap), multiple)

    def is_tight(count: int) -> bool:
        """With little room left in each micro-batch, even filling hardly ever works out."""
        return (count * cap - tokens) * len(lengths) < _LITTLE_ROOM * tokens * count

    if not is_tight(fewest) and (bins := balanced_pack(lengths, cap, fewest)):
        return bins
    bins = first_fit_pack(lengths, cap)
    count = _round_up(len(bins), multiple)
    if count > len(lengths):  # too many for the ranks: any way with fewer will do
        return balanced_pack(lengths, cap, fewest) or bins
    if count > fewest and not is_tight(count) and (evenly := balanced_pack(lengths, cap, count)):
        return evenly
    return bins


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _fill_ranks(
    micro_batches: list[list[int]],
    layout: _Layout,
    weights: Sequence[float],
    step: int,
    num_samples: int,
) -> None:
    """Split micro-batches, in place, until every rank gets the same number of them."""
    target = _round_up(len(micro_batches), layout.multiple)
    if target > num_samples:
        raise ValueError(
            f"step {step}: {num_samples} samples make {len(micro_batches)} micro-batches; dp_size "
            f"{layout.dp_size} with groups of {layout.group} needs {target} non-empty ones. Use "
            "fewer data-parallel ranks, more samples per step, or a larger max_tokens_per_gpu / "
            "micro_batch_size"
        )
    if target > len(micro_batches):
        expand_bins_by_splitting(micro_batches, target, weights)


def _balances(args: Any) -> bool:
    return bool(getattr(args, "balance_data", False) or getattr(args, "balance_by_flops", False))


def _distribute(
    args: Any, micro_batches: list[list[int]], dp_size: int, weights: Sequence[float]
) -> list[list[list[int]]]:
    """Micro-batches per rank, the same number each; balanced by weight when asked, else dealt in
    order.
    """
    if not _balances(args):
        return [micro_batches[rank::dp_size] for rank in range(dp_size)]
    loads = [sum(map(weights.__getitem__, members)) for members in micro_batches]
    ranks = get_seqlen_balanced_partitions(loads, dp_size, equal_size=True)
    # The heaviest first on every rank: ranks that wait for each other (pipeline, experts) wait
    # least.
    return [
        [micro_batches[i] for i in sorted(r, key=loads.__getitem__, reverse=True)] for r in ranks
    ]
