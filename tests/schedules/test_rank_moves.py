"""Moves of samples between ranks keep every invariant and bring the loads closer."""

from hypothesis import given, settings
from hypothesis import strategies as st

from slime.schedules.rank_moves import move_between_ranks

LENGTHS = st.integers(1, 30)


def loads_of(ranks: list[list[list[int]]], weights: list[int]) -> list[int]:
    return [sum(weights[i] for members in rank for i in members) for rank in ranks]


def test_a_sample_moves_into_the_room_of_a_split_micro_batch() -> None:
    lengths = [4, 6, 6, 4, 10, 3]
    ranks = [[[0, 1], [2, 3]], [[4], [5]]]
    move_between_ranks(ranks, lengths, lengths, 10)
    assert ranks == [[[1], [2, 3]], [[4], [0, 5]]] and loads_of(ranks, lengths) == [16, 17]


def test_nothing_moves_without_room_or_gain() -> None:
    ranks = [[[0, 1]], [[2]]]
    move_between_ranks(ranks, [5, 5, 8], [5, 5, 8], 10)
    assert ranks == [[[0, 1]], [[2]]]
    alone = [[[0]], [[1]]]
    move_between_ranks(alone, [9, 1], [9, 1], 10)
    assert alone == [[[0]], [[1]]]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.lists(LENGTHS, min_size=1, max_size=4), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 40),
)
def test_invariants(shapes: list[list[list[int]]], extra: int) -> None:
    lengths = [n for rank in shapes for members in rank for n in members]
    number = iter(range(len(lengths)))
    ranks = [[[next(number) for _ in members] for members in rank] for rank in shapes]
    counts = [len(rank) for rank in ranks]
    cap = max(sum(members) for rank in shapes for members in rank) + extra
    weights = [n * n for n in lengths]
    before = loads_of(ranks, weights)
    move_between_ranks(ranks, lengths, weights, cap)
    assert sorted(i for rank in ranks for members in rank for i in members) == list(
        range(len(lengths))
    )
    assert [len(rank) for rank in ranks] == counts and all(all(rank) for rank in ranks)
    assert all(sum(lengths[i] for i in members) <= cap for rank in ranks for members in rank)
    after = loads_of(ranks, weights)
    assert max(after) <= max(before) and min(after) >= min(before)
