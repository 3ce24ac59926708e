"""Pass@k against a count over all subsets."""

from itertools import combinations

import pytest

from slime.metrics.pass_rate import pass_at_k, pass_rates


@pytest.mark.parametrize("num", [1, 2, 5, 6])
def test_the_estimate_is_the_share_of_subsets_with_a_right_one(num: int) -> None:
    for right in range(num + 1):
        responses = [True] * right + [False] * (num - right)
        for k in range(1, num + 1):
            subsets = list(combinations(responses, k))
            expected = sum(any(subset) for subset in subsets) / len(subsets)
            assert pass_at_k(num, right, k) == pytest.approx(expected)


def test_five_rewards_in_groups_of_four_and_one() -> None:
    rates = pass_rates({"a": [1, 0, 0, 0], "b": [1]})
    assert rates == {"pass@1": (0.25 + 1) / 2, "pass@2": 0.5, "pass@4": 1.0}


def test_partial_and_negative_rewards_do_not_pass() -> None:
    assert pass_rates({0: [0.99, -1.0]})["pass@1"] == 0.0
    assert pass_rates({}) == {}


@pytest.mark.parametrize(("num", "right", "k"), [(2, 3, 1), (2, 1, 3), (2, 1, 0)])
def test_impossible_counts_are_refused(num: int, right: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k} of {right} right ones among {num}"):
        pass_at_k(num, right, k)
