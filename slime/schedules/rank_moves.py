"""Moves of single samples between ranks whose micro-batches are already dealt."""

from collections.abc import Sequence

_MOST_MOVES_PER_RANK = 4


def move_between_ranks(
    ranks: list[list[list[int]]], lengths: Sequence[int], weights: Sequence[float], cap: int
) -> None:
    """Bring the heaviest and the lightest rank closer, in place, by samples that fit elsewhere.

    Full micro-batches of whole ranks differ by whole micro-batches where their number is no
    multiple of the ranks; the ones that were split to fill up have room for single samples. No
    micro-batch exceeds the cap by this, and none becomes empty.

    Args:
        ranks: Micro-batches of each rank, each a list of samples.
        lengths: Tokens of each sample.
        weights: What is balanced: tokens or FLOPs of each sample.
        cap: Most tokens of a micro-batch.
    """
    loads = [
        float(sum(sum(map(weights.__getitem__, members)) for members in rank)) for rank in ranks
    ]
    for _ in range(_MOST_MOVES_PER_RANK * len(ranks)):
        heavy = max(range(len(ranks)), key=loads.__getitem__)
        light = min(range(len(ranks)), key=loads.__getitem__)
        gap = loads[heavy] - loads[light]
        tokens = [sum(map(lengths.__getitem__, members)) for members in ranks[light]]
        emptiest = min(range(len(tokens)), key=tokens.__getitem__)
        move = _best_move(ranks[heavy], lengths, weights, cap - tokens[emptiest], gap)
        if move is None:
            return
        members, sample = move
        members.remove(sample)
        ranks[light][emptiest].append(sample)
        ranks[light][emptiest].sort()
        loads[heavy] -= weights[sample]
        loads[light] += weights[sample]


def _best_move(
    rank: list[list[int]],
    lengths: Sequence[int],
    weights: Sequence[float],
    room: int,
    gap: float,
) -> tuple[list[int], int] | None:
    """The sample (and its micro-batch) that fits the room and comes closest to half the gap."""
    candidates = [
        (abs(weights[i] - gap / 2), i, place)
        for place, members in enumerate(rank)
        if len(members) > 1
        for i in members
        if lengths[i] <= room and weights[i] < gap
    ]
    if not candidates:
        return None
    _, sample, place = min(candidates)
    return rank[place], sample
