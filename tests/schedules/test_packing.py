"""Packing under a cap, against exhaustive search on small inputs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.schedules.packing import balanced_pack, expand_bins_by_splitting, first_fit_pack

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=40)


def fewest_bins(lengths: list[int], cap: int) -> int:
    """Exact optimum by depth-first search (sequences above the cap stand alone)."""
    fitting = sorted((n for n in lengths if n <= cap), reverse=True)
    best = len(fitting)

    def place(index: int, loads: list[int]) -> None:
        nonlocal best
        if len(loads) >= best:
            return
        if index == len(fitting):
            best = len(loads)
            return
        for room in sorted({load for load in loads if load + fitting[index] <= cap}):
            bin_number = loads.index(room)
            loads[bin_number] += fitting[index]
            place(index + 1, loads)
            loads[bin_number] -= fitting[index]
        place(index + 1, [*loads, fitting[index]])

    place(0, [])
    return best + sum(n > cap for n in lengths)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 60))
def test_every_sequence_once_and_only_lone_giants_above_the_cap(
    lengths: list[int], cap: int
) -> None:
    bins = first_fit_pack(lengths, cap)
    assert sorted(i for members in bins for i in members) == list(range(len(lengths)))
    for members in bins:
        assert sum(lengths[i] for i in members) <= cap or len(members) == 1


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=9), st.integers(5, 30))
def test_bin_count_within_the_bound_of_first_fit_decreasing(lengths: list[int], cap: int) -> None:
    optimum = fewest_bins(lengths, cap)
    assert optimum <= len(first_fit_pack(lengths, cap)) <= 11 / 9 * optimum + 6 / 9


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 60))
def test_bins_equal_a_plain_first_fit_scan(lengths: list[int], cap: int) -> None:
    """Filling bin by bin changes the speed only."""
    bins: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        for members in bins:
            if sum(lengths[i] for i in members) + lengths[index] <= cap:
                members.append(index)
                break
        else:
            bins.append([index])
    assert first_fit_pack(lengths, cap) == sorted(sorted(members) for members in bins)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 60), st.integers(1, 50))
def test_balanced_bins_keep_the_cap_and_differ_by_one_sequence(
    lengths: list[int], cap: int, num_bins: int
) -> None:
    bins = balanced_pack(lengths, cap, num_bins)
    if bins is None:
        # One more sequence on the emptiest of all bins would have been too much.
        fill = sum(min(n, cap) for n in lengths) / num_bins + max(lengths)
        assert num_bins > len(lengths) or fill > cap
        return
    assert len(bins) == num_bins
    assert sorted(i for members in bins for i in members) == list(range(len(lengths)))
    loads = [sum(lengths[i] for i in members) for members in bins]
    for members, load in zip(bins, loads, strict=True):
        assert load <= cap or len(members) == 1
        if len(members) > 1:  # it took its last one when it was the emptiest
            assert load - min(lengths[i] for i in members) <= min(loads)


def test_balanced_packing_fails_only_when_the_emptiest_bin_is_full() -> None:
    assert balanced_pack([6, 5, 5, 4], 10, 2) == [[0, 3], [1, 2]]
    assert balanced_pack([6, 6, 6], 10, 2) is None
    assert balanced_pack([25, 3, 7], 10, 2) == [[0], [1, 2]]
    assert balanced_pack([1], 10, 2) is None


def test_known_packing() -> None:
    assert first_fit_pack([6, 5, 4, 5], 10) == [[0, 2], [1, 3]]
    assert first_fit_pack([], 10) == []
    assert first_fit_pack([25, 3, 7], 10) == [[0], [1, 2]]


@pytest.mark.parametrize(("lengths", "cap"), [([1], 0), ([3, 0], 10), ([-1], 10)])
def test_impossible_numbers_are_refused(lengths: list[int], cap: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        first_fit_pack(lengths, cap)


@settings(deadline=None)
@given(LENGTHS, st.integers(20, 60), st.data())
def test_splitting_reaches_the_count_without_heavier_bins(
    lengths: list[int], cap: int, data: st.DataObject
) -> None:
    bins = first_fit_pack(lengths, cap)
    heaviest = max(sum(lengths[i] for i in members) for members in bins)
    target = data.draw(st.integers(len(bins), len(lengths)))
    expand_bins_by_splitting(bins, target, lengths)
    assert len(bins) == target and all(bins)
    assert sorted(i for members in bins for i in members) == list(range(len(lengths)))
    assert max(sum(lengths[i] for i in members) for members in bins) <= heaviest


def test_splitting_halves_the_heaviest() -> None:
    bins = [[0, 1, 2], [3, 4]]
    expand_bins_by_splitting(bins, 3, [5, 5, 9, 1, 2])
    assert bins == [[2], [3, 4], [0, 1]]


@pytest.mark.parametrize("target", [1, 4])
def test_splitting_names_the_numbers_when_it_cannot(target: int) -> None:
    with pytest.raises(ValueError, match=f"2 micro-batches of 3 sequences .* {target}"):
        expand_bins_by_splitting([[0, 1], [2]], target, [1, 1, 1])
