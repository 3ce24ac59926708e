"""Packing of sequences into micro-batches under a token cap."""

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter

import numpy as np


def first_fit_pack(total_lengths: Sequence[int], max_tokens_per_bin: int) -> list[list[int]]:
    """Pack sequences into bins by first-fit decreasing (Johnson, 1973: at most 11/9 OPT + 6/9
    bins).

    Args:
        total_lengths: Tokens of each sequence, all positive.
        max_tokens_per_bin: The cap. Only a sequence that alone exceeds it makes a bin above it.

    Returns:
        Indices per bin, ascending; bins in order of their first index. O(n log n).

    Raises:
        ValueError: The cap or a length is not positive.
    """
    if max_tokens_per_bin <= 0:
        raise ValueError(f"the token cap must be positive, it is {max_tokens_per_bin}")
    if total_lengths and min(total_lengths) <= 0:
        index = min(range(len(total_lengths)), key=total_lengths.__getitem__)
        raise ValueError(f"sequence {index} has length {total_lengths[index]}; it must be positive")
    # Bin by bin: a bin takes, again and again, the longest sequence left that fits. These are the
    # bins of first-fit decreasing, found by bisection in one sorted list of what is left; ties go
    # by index.
    num = len(total_lengths)
    keys = np.asarray(total_lengths, dtype=np.int64) * num + np.arange(num - 1, -1, -1)
    left = np.sort(keys).tolist()
    bins: list[list[int]] = []
    while left:
        length, place = divmod(left.pop(), num)
        members, room = [num - 1 - place], max_tokens_per_bin - length
        while room > 0 and (position := bisect_left(left, (room + 1) * num)):
            length, place = divmod(left.pop(position - 1), num)
            members.append(num - 1 - place)
            room -= length
        members.sort()
        bins.append(members)
    return sorted(bins, key=itemgetter(0))


def balanced_pack(
    total_lengths: Sequence[int], max_tokens_per_bin: int, num_bins: int
) -> list[list[int]] | None:
    """Pack sequences into `num_bins` bins of nearly equal tokens under the cap: longest first, each
    to the emptiest bin (Graham, 1969: LPT).

    Args:
        total_lengths: Tokens of each sequence, all positive.
        max_tokens_per_bin: The cap. Only a sequence that alone exceeds it makes a bin above it.
        num_bins: Number of bins.

    Returns:
        Indices per bin, ascending, no bin empty, bins in order of their first index; None where
        this way finds no packing. O(n log n).
    """
    if num_bins > len(total_lengths):
        return None
    order = np.argsort(-np.asarray(total_lengths), kind="stable").tolist()
    # The longest open the bins; so the heap starts with one sequence in each.
    bins = [[index] for index in order[:num_bins]]
    heap = [(total_lengths[members[0]], position) for position, members in enumerate(bins)]
    heap.reverse()  # ascending, hence a heap
    for index in order[num_bins:]:
        load, position = heap[0]
        load += total_lengths[index]
        if load > max_tokens_per_bin:
            return None  # not even the emptiest has room
        bins[position].append(index)
        heapq.heapreplace(heap, (load, position))
    for members in bins:
        members.sort()
    return sorted(bins, key=itemgetter(0))


def expand_bins_by_splitting(
    bins: list[list[int]], target_count: int, lengths: Sequence[float]
) -> None:
    """Split the heaviest bins, in place, until there are `target_count`; no bin grows, so a cap
    still holds.

    Args:
        bins: Indices into `lengths`, no bin empty.
        target_count: Number of bins wanted, not below `len(bins)`.
        lengths: Weight of each index (tokens or FLOPs).

    Raises:
        ValueError: There are fewer sequences than bins wanted, or more bins than wanted.
    """
    num_sequences = sum(len(members) for members in bins)
    if not len(bins) <= target_count <= num_sequences:
        raise ValueError(
            f"{len(bins)} micro-batches of {num_sequences} sequences cannot be split into "
            f"{target_count}"
        )
    # Only bins with two or more members can be split; the heap holds those, the heaviest first.
    heap = [(-_weight(b, lengths), i) for i, b in enumerate(bins) if len(b) > 1]
    heapq.heapify(heap)
    while len(bins) < target_count:
        _, position = heapq.heappop(heap)
        bins[position], new = _halve(bins[position], lengths)
        bins.append(new)
        for changed in (position, len(bins) - 1):
            if len(bins[changed]) > 1:
                heapq.heappush(heap, (-_weight(bins[changed], lengths), changed))


def _weight(members: Sequence[int], lengths: Sequence[float]) -> float:
    return sum(map(lengths.__getitem__, members))


def _halve(members: Sequence[int], lengths: Sequence[float]) -> tuple[list[int], list[int]]:
    """Two non-empty halves of similar weight: the longest first, each to the lighter half."""
    halves: tuple[list[int], list[int]] = ([], [])
    weights = [0.0, 0.0]
    for index in sorted(members, key=lambda i: (-lengths[i], i)):
        # An empty half comes first even when the weights tie, so that neither half stays empty.
        side = min((0, 1), key=lambda s: (weights[s], len(halves[s]), s))
        halves[side].append(index)
        weights[side] += lengths[index]
    return sorted(halves[0]), sorted(halves[1])
