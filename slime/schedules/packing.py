"""Packing of sequences into micro-batches under a token cap."""

import heapq
from collections.abc import Sequence


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
    room = _RoomTree(len(total_lengths), max_tokens_per_bin)
    bins: list[list[int]] = []
    for index in sorted(range(len(total_lengths)), key=lambda i: (-total_lengths[i], i)):
        length = total_lengths[index]
        # A sequence above the cap opens a bin of its own and leaves no room in it.
        position = room.take_first_fit(min(length, max_tokens_per_bin))
        if position == len(bins):
            bins.append([])
        bins[position].append(index)
    for members in bins:
        members.sort()
    return sorted(bins)


class _RoomTree:
    """Free room of bins in a max-tree: the first bin with enough room is found in O(log n)."""

    def __init__(self, num_bins: int, capacity: int) -> None:
        self._num_leaves = 1 << max(num_bins - 1, 0).bit_length()
        self._tree = [capacity] * (2 * self._num_leaves)

    def take_first_fit(self, size: int) -> int:
        """Take `size` from the first bin that has it; return the bin. An untouched bin always has
        it.
        """
        tree, node = self._tree, 1
        while node < self._num_leaves:
            node = 2 * node if tree[2 * node] >= size else 2 * node + 1
        position = node - self._num_leaves
        tree[node] -= size
        while node > 1:
            node //= 2
            tree[node] = max(tree[2 * node], tree[2 * node + 1])
        return position


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
    return sum(lengths[index] for index in members)


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
