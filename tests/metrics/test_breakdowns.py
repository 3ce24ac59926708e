"""Metrics asked for by option."""

from argparse import Namespace
from typing import Any

import pytest

from slime.metrics import rollout_metrics
from slime.samples.sample import Sample


def make_sample(group: int, rollout: int, reward: Any, mask: list[int], **metadata: Any) -> Sample:
    sample = Sample(group_index=group, rollout_id=rollout, reward=reward, metadata=metadata)
    sample.append_response_tokens(tokens=[3] * len(mask))
    sample.loss_mask = mask
    sample.status = Sample.Status.COMPLETED
    return sample


def metrics_of(samples: list[Sample], **options: Any) -> dict[str, float]:
    metrics = rollout_metrics(Namespace(**{"reward_key": None} | options), samples)
    without = rollout_metrics(Namespace(reward_key=options.get("reward_key")), samples)
    return {k.removeprefix("rollout/"): v for k, v in metrics.items() if k not in without}


def test_categories_are_shares_of_rollouts() -> None:
    samples = [
        make_sample(0, 0, {"score": 1, "why": "right"}, [1]),
        make_sample(0, 1, {"score": 0, "why": "no/box"}, [1]),
        make_sample(0, 2, {"score": 0, "why": "other"}, [1]),  # one rollout, its last sample counts
        make_sample(0, 2, {"score": 0, "why": "no/box"}, [1]),
        make_sample(0, 3, {"score": 0}, [1]),
    ]
    assert metrics_of(samples, reward_key="score", log_reward_category="why") == {
        "category/right": 1 / 4,
        "category/no_box": 2 / 4,
        "category/none": 1 / 4,
    }


def test_turns_are_runs_of_trained_tokens() -> None:
    samples = [
        make_sample(0, 0, 1.0, [1, 1, 0, 0, 1, 0, 1]),
        make_sample(0, 1, 1.0, [0, 1, 1, 1]),
        make_sample(0, 2, 1.0, []),
    ]
    assert metrics_of(samples, log_multi_turn=True) == {
        "turns_mean": 2,
        "turns_max": 3,
        "observations_mean": 1,
        "observation_tokens_mean": 3 / 2,
    }


def test_correct_samples_apart() -> None:
    samples = [
        make_sample(0, 0, 1.0, [1] * 4),
        make_sample(0, 1, 0.5, [1] * 100),
        make_sample(0, 2, 2.0, [1] * 8),
        make_sample(0, 3, None, [1] * 100),
    ]
    samples[2].status = Sample.Status.TRUNCATED
    assert metrics_of(samples, log_correct_samples=True) == {
        "correct/num_samples": 2,
        "correct/response_len_mean": 6,
        "correct/response_len_max": 8,
        "correct/truncated_ratio": 1 / 2,
    }


def test_pass_rates_by_source() -> None:
    samples = [
        make_sample(0, 0, 1.0, [1], source_name="a"),
        make_sample(0, 1, 0.0, [1], source_name="a"),
        make_sample(1, 2, 0.0, [1], source_name="b"),
        make_sample(2, 3, 1.0, [1]),
    ]
    metrics = metrics_of(samples, log_passrate=True)
    assert metrics == pytest.approx(
        {
            "pass@1": 1 / 2,  # the mean of 1/2, 0 and 1 over the groups
            "pass@2": 1,
            "a/pass@1": 1 / 2,
            "a/pass@2": 1,
            "b/pass@1": 0,
        }
    )


def test_shares_of_groups_without_a_signal_by_reward() -> None:
    rewards = [[1, 1], [0, 0], [0, 0], [0, 1], [5]]
    samples = [
        make_sample(group, 10 * group + i, float(r), [1])
        for group, members in enumerate(rewards)
        for i, r in enumerate(members)
    ]
    metrics = rollout_metrics(Namespace(reward_key=None), samples)
    assert metrics["rollout/zero_std_ratio"] == 3 / 4
    assert metrics["rollout/zero_std_ratio/0"] == 2 / 4
    assert metrics["rollout/zero_std_ratio/1"] == 1 / 4
