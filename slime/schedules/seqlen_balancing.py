"""Partition of weights into parts of nearly equal sum: longest first, then swaps.

Longest processing time first (Graham, "Bounds on multiprocessing timing anomalies", 1969), with
equal sizes in rounds of one index per part, followed by exchanges between the heaviest part and
light ones. At thousands of weights this ends as close as Karmarkar and Karp's differencing method
in a fraction of its time.
"""

import heapq
from collections.abc import Sequence

import numpy as np

_MOST_EXCHANGES_PER_PART = 8
_CLOSE_ENOUGH = 1e-6  # of the mean load
_PARTNERS = 2
"""Light parts that are tried before the heaviest part counts as final."""


def get_seqlen_balanced_partitions(
    seqlen_list: Sequence[float], k_partitions: int, equal_size: bool
) -> list[list[int]]:
    """Split indices into `k_partitions` non-empty parts whose sums are close.

    Args:
        seqlen_list: Non-negative weight of each index.
        k_partitions: Number of parts.
        equal_size: Every part has the same number of indices.

    Returns:
        Ascending indices per part; parts in order of their first index.

    Raises:
        ValueError: Fewer indices than parts, or `equal_size` and no multiple.
    """
    num = len(seqlen_list)
    if k_partitions < 1 or num < k_partitions:
        raise ValueError(f"{num} sequences cannot fill {k_partitions} partitions")
    if equal_size and num % k_partitions:
        raise ValueError(f"{num} sequences are no multiple of {k_partitions} partitions")
    weights = np.asarray(seqlen_list, dtype=np.float64)
    order = np.argsort(-weights, kind="stable")
    deal = _deal_in_rounds if equal_size else _deal
    parts = [np.asarray(part) for part in deal(order.tolist(), weights.tolist(), k_partitions)]
    _exchange(parts, weights, equal_size)
    return sorted(sorted(part.tolist()) for part in parts)


def _deal(order: list[int], weights: list[float], k: int) -> list[list[int]]:
    """Each index, the heaviest first, to the lightest part; to an empty one as long as there is."""
    parts = [[index] for index in order[:k]]
    heap = [(weights[part[0]], position) for position, part in enumerate(parts)]
    heapq.heapify(heap)
    for index in order[k:]:
        load, position = heap[0]
        parts[position].append(index)
        heapq.heapreplace(heap, (load + weights[index], position))
    return parts


def _deal_in_rounds(order: list[int], weights: list[float], k: int) -> list[list[int]]:
    """One index to every part in each round, the heaviest of a round to the lightest part."""
    parts: list[list[int]] = [[] for _ in range(k)]
    loads = [0.0] * k
    for start in range(0, len(order), k):
        by_load = sorted(range(k), key=loads.__getitem__)
        for position, index in zip(by_load, order[start : start + k], strict=True):
            parts[position].append(index)
            loads[position] += weights[index]
    return parts


def _exchange(parts: list[np.ndarray], weights: np.ndarray, equal_size: bool) -> None:
    """Swap indices of the heaviest part for lighter ones (or give them away), in place."""
    loads = np.array([weights[part].sum() for part in parts])
    for _ in range(_MOST_EXCHANGES_PER_PART * len(parts)):
        heavy = int(loads.argmax())
        if loads[heavy] <= loads.mean() * (1 + _CLOSE_ENOUGH):
            break
        lightest = np.argsort(loads, kind="stable")[:_PARTNERS]
        if not any(
            _exchange_once(parts, weights, loads, heavy, int(p), equal_size) for p in lightest
        ):
            break


def _exchange_once(
    parts: list[np.ndarray],
    weights: np.ndarray,
    loads: np.ndarray,
    heavy: int,
    light: int,
    equal_size: bool,
) -> bool:
    """The exchange that brings the two parts closest; False when none brings them closer."""
    gap = loads[heavy] - loads[light]
    if gap <= 0:
        return False
    given = weights[parts[heavy]]
    taken_order = np.argsort(weights[parts[light]], kind="stable")
    taken = weights[parts[light]][taken_order]
    # For each index given away, the one to take back whose weight is nearest to half the gap below.
    nearest = np.searchsorted(taken, given - gap / 2)
    candidates = np.stack([np.maximum(nearest - 1, 0), np.minimum(nearest, len(taken) - 1)])
    transfer = given - taken[candidates]
    miss = np.abs(transfer - gap / 2)
    best = np.unravel_index(int(miss.argmin()), miss.shape)
    swap_miss = float(miss[best])
    if not equal_size and len(given) > 1:
        moved = int(np.abs(given - gap / 2).argmin())
        if abs(given[moved] - gap / 2) < min(swap_miss, gap / 2):
            parts[light] = np.append(parts[light], parts[heavy][moved])
            parts[heavy] = np.delete(parts[heavy], moved)
            loads[heavy] -= given[moved]
            loads[light] += given[moved]
            return True
    if swap_miss >= gap / 2 * (1 - 1e-12):
        return False
    mine, theirs = int(best[1]), int(taken_order[candidates[best]])
    parts[heavy][mine], parts[light][theirs] = parts[light][theirs], parts[heavy][mine]
    loads[heavy] -= transfer[best]
    loads[light] += transfer[best]
    return True
