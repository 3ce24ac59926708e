"""Balanced partitions against exhaustive search."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.schedules.seqlen_balancing import get_seqlen_balanced_partitions


def best_makespan(weights: list[int], k: int, equal_size: bool) -> int:
    best = sum(weights)
    for assignment in product(range(k), repeat=len(weights)):
        sums, sizes = [0] * k, [0] * k
        for weight, part in zip(weights, assignment, strict=True):
            sums[part] += weight
            sizes[part] += 1
        if min(sizes) and (not equal_size or len(set(sizes)) == 1):
            best = min(best, max(sums))
    return best


@settings(deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(0, 100), min_size=5, max_size=30), st.booleans())
def test_partition_invariants(k: int, weights: list[int], equal_size: bool) -> None:
    if equal_size:
        weights = weights[: len(weights) // k * k]
    parts = get_seqlen_balanced_partitions(weights, k, equal_size)
    assert len(parts) == k and all(parts)
    assert sorted(i for part in parts for i in part) == list(range(len(weights)))
    if equal_size:
        assert {len(part) for part in parts} == {len(weights) // k}


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=6, max_size=6), st.sampled_from([2, 3]), st.booleans())
def test_close_to_the_optimum(weights: list[int], k: int, equal_size: bool) -> None:
    """Within 4/3 of the best makespan, also with parts of two or three (Michiels et al., 2007)."""
    parts = get_seqlen_balanced_partitions(weights, k, equal_size)
    reached = max(sum(weights[i] for i in part) for part in parts)
    assert reached <= 4 / 3 * best_makespan(weights, k, equal_size) + 1e-9


def test_known_partitions() -> None:
    # The example of Karmarkar and Karp, which their method ends with 14 and 16.
    assert get_seqlen_balanced_partitions([8, 7, 6, 5, 4], 2, False) == [[0, 1], [2, 3, 4]]
    assert get_seqlen_balanced_partitions([1, 2, 3, 4], 2, True) == [[0, 3], [1, 2]]
    assert get_seqlen_balanced_partitions([100, 1, 1], 3, False) == [[0], [1], [2]]
    assert get_seqlen_balanced_partitions([0, 0, 0], 3, False) == [[0], [1], [2]]


@pytest.mark.parametrize(("num", "k", "equal"), [(2, 3, False), (5, 2, True), (3, 0, False)])
def test_impossible_partitions_name_the_numbers(num: int, k: int, equal: bool) -> None:
    with pytest.raises(ValueError, match=f"{num} sequences .* {k} partitions"):
        get_seqlen_balanced_partitions([1] * num, k, equal)
