"""Rewards relative to the group: by identity, a fanned-out rollout once."""

from argparse import Namespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.rewards.normalize import post_process_rewards
from slime.samples.sample import Sample


def make_args(std: bool = False, **changes: object) -> Namespace:
    base = {
        "advantage_estimator": "grpo",
        "rewards_normalization": True,
        "grpo_std_normalization": std,
        "reward_key": None,
        "custom_reward_post_process_path": None,
    }
    return Namespace(**base | changes)


def make_samples(rewards: list, groups: list, rollouts: list | None = None) -> list[Sample]:
    rollouts = rollouts or list(range(len(rewards)))
    return [
        Sample(index=i, reward=r, group_index=g, rollout_id=o)
        for i, (r, g, o) in enumerate(zip(rewards, groups, rollouts, strict=True))
    ]


@pytest.mark.parametrize(("std", "expected"), [(False, [-1, 1, 0]), (True, [-0.7071, 0.7071, 0])])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_groups_of_two_and_one_in_any_order(
    std: bool, expected: list[float], order: list[int]
) -> None:
    samples = make_samples([1.0, 3.0, 5.0], [0, 0, 1])
    raw, rewards = post_process_rewards(make_args(std), [samples[i] for i in order])
    assert raw == [[1.0, 3.0, 5.0][i] for i in order]
    assert rewards == pytest.approx([expected[i] for i in order], abs=1e-4)


def test_a_fanned_out_rollout_counts_once() -> None:
    samples = make_samples([1, 1, 1, 0], [0] * 4, [7, 7, 7, 8])
    assert post_process_rewards(make_args(), samples)[1] == [0.5, 0.5, 0.5, -0.5]
    # With scaling: values 1 and 0, deviation sqrt(1/2).
    scaled = post_process_rewards(make_args(True), samples)[1]
    assert scaled == pytest.approx([0.7071] * 3 + [-0.7071], abs=1e-4)


def test_rloo_leaves_the_own_rollout_out() -> None:
    samples = make_samples([1, 3, 4, 9, 5, 1], [0, 0, 0, 0, 1, 1], [1, 1, 2, 3, 4, 5])
    # Rollout 1 fanned out into rewards 1 and 3, value 2; the others are worth 4 and 9.
    rewards = post_process_rewards(make_args(advantage_estimator="rloo"), samples)[1]
    assert rewards == pytest.approx([1 - 6.5, 3 - 6.5, 4 - 5.5, 9 - 3, 5 - 1, 1 - 5])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rewards_normalization": False}, [1, 3]),
        ({"advantage_estimator": "ppo"}, [1, 3]),
        ({"advantage_estimator": "reinforce_plus_plus"}, [1, 3]),
        ({"advantage_estimator": "reinforce_plus_plus_baseline", "std": True}, [-1, 1]),
        ({"advantage_estimator": "gspo"}, [-1, 1]),
        ({"advantage_estimator": "rloo", "std": True}, [-2, 2]),
    ],
)
def test_which_estimators_normalise(changes: dict, expected: list[float]) -> None:
    assert post_process_rewards(make_args(**changes), make_samples([1, 3], [0, 0]))[1] == expected


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 5)), min_size=1, max_size=30), st.booleans()
)
def test_every_group_ends_centred_and_bounded(pairs: list, std: bool) -> None:
    samples = make_samples([r for _, r in pairs], [g for g, _ in pairs])
    _, rewards = post_process_rewards(make_args(std), samples)
    for group in {g for g, _ in pairs}:
        values = [v for v, (g, _) in zip(rewards, pairs, strict=True) if g == group]
        assert sum(values) == pytest.approx(0, abs=1e-6)
        if std:  # n values of deviation <= 1 (ddof 1)
            assert sum(v * v for v in values) <= max(len(values) - 1, 0) + 1e-6


def test_equal_rewards_give_exact_zeros() -> None:
    """The mean of 0.1 * 3 is not 0.1 in floating point; divided by epsilon it would show."""
    samples = make_samples([0.1] * 3, [0] * 3)
    assert post_process_rewards(make_args(True), samples)[1] == [0.0] * 3


def test_within_one_rollout_nothing_blows_up() -> None:
    samples = make_samples([1, 0], [0, 0], [5, 5])
    assert post_process_rewards(make_args(True), samples)[1] == [0.0, 0.0]
    samples = make_samples([1, 0, 0, 1], [0] * 4, [5, 5, 6, 6])
    assert post_process_rewards(make_args(True), samples)[1] == [0.0] * 4


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf")])
def test_rewards_that_are_no_numbers_are_refused(reward: float | None) -> None:
    with pytest.raises(ValueError, match="sample 1 has the reward"):
        post_process_rewards(make_args(), make_samples([1.0, reward], [0, 0]))


def test_dict_rewards_need_a_key() -> None:
    samples = make_samples([{"score": 1.0, "acc": True}, {"score": -1.0, "acc": False}], [0, 0])
    with pytest.raises(ValueError, match="score/acc"):
        post_process_rewards(make_args(), samples)
    assert post_process_rewards(make_args(reward_key="score"), samples) == (
        [1.0, -1.0],
        [1.0, -1.0],
    )


def custom(args: Namespace, samples: list[Sample]) -> tuple[list[float], list[float]]:
    return [7.0], [8.0]


def test_a_custom_function_takes_over() -> None:
    args = make_args(custom_reward_post_process_path=f"{__name__}.custom")
    assert post_process_rewards(args, make_samples([None], [None])) == ([7.0], [8.0])
