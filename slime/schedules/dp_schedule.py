"""Steps, micro-batches and data-parallel ranks of one rollout's samples: pack first, distribute
second.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slime.schedules.flops import calculate_fwd_flops
from slime.schedules.packing import expand_bins_by_splitting, first_fit_pack
from slime.schedules.seqlen_balancing import get_seqlen_balanced_partitions

DpSchedule = tuple[list[list[int]], list[list[list[int]]], list[int], list[int]]


def build_dp_schedule(
    args: Any,
    train_parallel_config: dict[str, int],
    total_lengths: list[int],
    *,
    global_batch_size: int,
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
        global_batch_size: Rollouts per step.
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
    steps = _steps(rollout_indices, len(total_lengths), global_batch_size)
    weights = _weights(args, total_lengths)
    partitions: list[list[int]] = [[] for _ in range(layout.dp_size)]
    micro_batch_indices: list[list[list[int]]] = [[] for _ in range(layout.dp_size)]
    num_microbatches = []
    for number, step in enumerate(steps):
        micro_batches = _pack(args, layout, [total_lengths[i] for i in step])
        micro_batches = [[step[position] for position in members] for members in micro_batches]
        _fill_ranks(micro_batches, layout, weights, number, len(step))
        num_microbatches.append(len(micro_batches) // layout.dp_size)
        for rank, mine in enumerate(_distribute(args, micro_batches, layout.dp_size, weights)):
            for members in mine:
                start = len(partitions[rank])
                partitions[rank].extend(members)
                micro_batch_indices[rank].append(list(range(start, start + len(members))))
    return partitions, micro_batch_indices, num_microbatches, [global_batch_size] * len(steps)


@dataclass(frozen=True)
class _Layout:
    dp_size: int
    cp_size: int
    group: int
    """Micro-batches of a rank come in multiples of this (1 without virtual pipeline stages)."""

    @classmethod
    def read(cls, config: dict[str, int]) -> "_Layout":
        group = config.get("microbatch_group_size_per_vp_stage") or 1
        interleaved = (config.get("vpp_size") or 1) > 1
        return cls(config["dp_size"], config.get("cp_size") or 1, group if interleaved else 1)


def _steps(
    rollout_indices: Sequence[int], num_samples: int, global_batch_size: int
) -> list[list[int]]:
    """Samples of each step, in order: `global_batch_size` whole rollouts each."""
    if len(rollout_indices) != num_samples:
        raise ValueError(f"{len(rollout_indices)} rollout_indices for {num_samples} samples")
    order = {rollout: place for place, rollout in enumerate(dict.fromkeys(rollout_indices))}
    if global_batch_size < 1 or not order or len(order) % global_batch_size:
        raise ValueError(
            f"{len(order)} rollouts ({num_samples} samples) cannot be split into steps of "
            f"global_batch_size = {global_batch_size} rollouts; make rollout_batch_size * "
            "n_samples_per_prompt a multiple of it"
        )
    steps: list[list[int]] = [[] for _ in range(len(order) // global_batch_size)]
    for sample, rollout in enumerate(rollout_indices):
        steps[order[rollout] // global_batch_size].append(sample)
    return steps


def _weights(args: Any, total_lengths: Sequence[int]) -> Sequence[float]:
    if not getattr(args, "balance_by_flops", False):
        return total_lengths
    flops = {length: calculate_fwd_flops([length], args) for length in set(total_lengths)}
    return [flops[length] for length in total_lengths]


def _pack(args: Namespace, layout: _Layout, lengths: Sequence[int]) -> list[list[int]]:
    """Micro-batches of one step as positions in `lengths`."""
    if args.use_dynamic_batch_size:
        if not args.max_tokens_per_gpu:
            raise ValueError("use_dynamic_batch_size needs max_tokens_per_gpu")
        return first_fit_pack(lengths, args.max_tokens_per_gpu * layout.cp_size)
    order = list(range(len(lengths)))
    if _balances(args):
        # Neighbours in length share a micro-batch, so micro-batches differ and can be balanced.
        order.sort(key=lambda i: (-lengths[i], i))
    size = args.micro_batch_size
    return [order[start : start + size] for start in range(0, len(order), size)]


def _fill_ranks(
    micro_batches: list[list[int]],
    layout: _Layout,
    weights: Sequence[float],
    step: int,
    num_samples: int,
) -> None:
    """Split micro-batches, in place, until every rank gets the same number of them."""
    multiple = layout.dp_size * layout.group
    target = -(-len(micro_batches) // multiple) * multiple
    if target > num_samples:
        raise ValueError(
            f"step {step}: {num_samples} samples make {len(micro_batches)} micro-batches; dp_size "
            f"{layout.dp_size} with groups of {layout.group} needs {target} non-empty ones. Use "
            "fewer data-parallel ranks, more samples per step, or a larger max_tokens_per_gpu / "
            "micro_batch_size"
        )
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
    loads = [sum(weights[i] for i in members) for members in micro_batches]
    ranks = get_seqlen_balanced_partitions(loads, dp_size, equal_size=True)
    # The heaviest first on every rank: ranks that wait for each other (pipeline, experts) wait
    # least.
    return [[micro_batches[i] for i in sorted(r, key=lambda i: (-loads[i], i))] for r in ranks]
