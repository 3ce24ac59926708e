"""Partition of weights into parts of nearly equal sum: the largest differencing method.

Karmarkar and Karp, "The differencing method of set partitioning" (1982), in its k-way form.
"""

import heapq
from collections.abc import Sequence
from itertools import count

Parts = list[tuple[float, list[int]]]
"""k parts (sum, indices), the lightest first."""


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
    order = sorted(range(num), key=lambda i: (-seqlen_list[i], i))
    # With equal sizes every start has one index in each part, so every merge keeps the sizes equal.
    step = k_partitions if equal_size else 1
    tie = count()
    heap: list[tuple[float, int, Parts]] = []
    for start in range(0, num, step):
        chunk = order[start : start + step]
        parts: Parts = [(seqlen_list[i], [i]) for i in reversed(chunk)]
        parts = [(0.0, []) for _ in range(k_partitions - step)] + parts if not equal_size else parts
        heap.append((parts[0][0] - parts[-1][0], next(tie), parts))
    heapq.heapify(heap)
    while len(heap) > 1:
        _, _, wide = heapq.heappop(heap)
        _, _, other = heapq.heappop(heap)
        merged = _merge(wide, other)
        heapq.heappush(heap, (merged[0][0] - merged[-1][0], next(tie), merged))
    return sorted(sorted(members) for _, members in heap[0][2])


def _merge(left: Parts, right: Parts) -> Parts:
    """Join the lightest parts of one with the heaviest of the other."""
    joined = [
        (light + heavy, light_members + heavy_members)
        for (light, light_members), (heavy, heavy_members) in zip(
            left, reversed(right), strict=True
        )
    ]
    # Empty parts sort before parts of weight zero: no part stays empty while there are enough
    # indices.
    joined.sort(key=lambda part: (part[0], len(part[1])))
    return joined
