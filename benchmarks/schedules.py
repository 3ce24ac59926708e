"""The data-parallel schedule against first-fit and differencing: time, micro-batches, balance.

    ./bazelw run //benchmarks:schedules

The baseline is written from the papers: first-fit in order of arrival (Johnson, 1973), split to a
multiple of the ranks, and the differencing method of Karmarkar and Karp (1982) over micro-batches.
Balance is the load of the heaviest rank over the mean load, in tokens or FLOPs.
"""

import argparse
import heapq
import time
from argparse import Namespace
from itertools import count

import numpy as np

from slime.schedules.dp_schedule import build_dp_schedule
from slime.schedules.flops import calculate_fwd_flops
from slime.schedules.packing import expand_bins_by_splitting

_MODEL = {  # the sizes of a dense 8B model
    "num_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "kv_channels": 128,
    "ffn_hidden_size": 12288,
    "vocab_size": 151936,
    "num_experts": None,
    "swiglu": True,
}


def first_fit(lengths: list[int], cap: int) -> list[list[int]]:
    rooms = np.full(len(lengths), cap)
    bins: list[list[int]] = [[] for _ in lengths]
    for index, length in enumerate(lengths):
        position = int(np.argmax(rooms >= min(length, cap)))
        bins[position].append(index)
        rooms[position] -= length
    return [members for members in bins if members]


def differencing(loads: list[float], k: int) -> list[list[int]]:
    """k parts of equal size; every start has one index in each part, so every merge has too."""
    order = sorted(range(len(loads)), key=lambda i: -loads[i])
    ties = count()
    heap = []
    for start in range(0, len(order), k):
        parts = [(loads[i], [i]) for i in reversed(order[start : start + k])]
        heap.append((parts[0][0] - parts[-1][0], next(ties), parts))
    heapq.heapify(heap)
    while len(heap) > 1:
        (_, _, one), (_, _, other) = heapq.heappop(heap), heapq.heappop(heap)
        pairs = zip(one, reversed(other), strict=True)
        parts = sorted((a + b, left + right) for (a, left), (b, right) in pairs)
        heapq.heappush(heap, (parts[0][0] - parts[-1][0], next(ties), parts))
    return [members for _, members in heap[0][2]]


def baseline(lengths: list[int], weights: list[int], cap: int, dp_size: int) -> list[list[int]]:
    """Samples of each micro-batch list per rank, flattened; every rank has as many."""
    bins = first_fit(lengths, cap)
    expand_bins_by_splitting(bins, -(-len(bins) // dp_size) * dp_size, weights)
    ranks = differencing([float(sum(weights[i] for i in members)) for members in bins], dp_size)
    baseline_counts.append(len(bins) // dp_size)
    return [[i for position in rank for i in bins[position]] for rank in ranks]


baseline_counts: list[int] = []


def imbalance(partitions: list[list[int]], weights: list[int]) -> float:
    loads = [sum(weights[i] for i in members) for members in partitions]
    return max(loads) * len(loads) / sum(loads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    draws = {
        "lognormal": rng.lognormal(7.5, 1.0, options.samples),
        "uniform": rng.uniform(64, 16384, options.samples),
        "bimodal": np.where(
            rng.random(options.samples) < 0.2, 16384, rng.normal(900, 200, options.samples)
        ),
    }
    print("| lengths | cap | ranks | balanced by | ms | ms before | micro-batches | balance |")
    print("|---|---|---|---|---|---|---|---|")
    for name, draw in draws.items():
        lengths = [int(length) for length in np.clip(draw, 64, 16384)]
        for cap, dp_size in ((16384, 8), (32768, 8), (32768, 64)):
            for by_flops in (False, True):
                row = compare(lengths, cap, dp_size, by_flops, options.repeats)
                unit = "FLOPs" if by_flops else "tokens"
                print(f"| {name} | {cap} | {dp_size} | {unit} | {row} |")


def compare(lengths: list[int], cap: int, dp_size: int, by_flops: bool, repeats: int) -> str:
    """One row: processor time (best of `repeats`), counts and balance, ours / the baseline's."""
    args = Namespace(
        **_MODEL,
        use_dynamic_batch_size=True,
        max_tokens_per_gpu=cap,
        balance_data=True,
        balance_by_flops=by_flops,
    )
    weights = [calculate_fwd_flops([n], args) for n in lengths] if by_flops else lengths
    seconds = []
    for _ in range(repeats):
        started = time.thread_time()
        partitions, micro_batches, counts, _ = build_dp_schedule(
            args,
            {"dp_size": dp_size},
            lengths,
            global_batch_size=len(lengths),
            rollout_indices=list(range(len(lengths))),
        )
        seconds.append(time.thread_time() - started)
    for part, mine in zip(partitions, micro_batches, strict=True):
        for members in mine:
            assert sum(lengths[part[i]] for i in members) <= cap or len(members) == 1
    started = time.thread_time()
    before = baseline(lengths, weights, cap, dp_size)
    before_ms = (time.thread_time() - started) * 1e3
    return (
        f"{min(seconds) * 1e3:.1f} | {before_ms:.0f} | {counts[0]} / {baseline_counts[-1]} | "
        f"{imbalance(partitions, weights):.6f} / {imbalance(before, weights):.6f}"
    )


if __name__ == "__main__":
    main()
