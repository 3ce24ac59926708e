"""Metrics of a rollout on a small known one."""

from argparse import Namespace

import pytest

from slime.metrics import rollout_metrics
from slime.metrics.staleness import staleness, weight_lag
from slime.metrics.statistics import values
from slime.samples.sample import Sample

ARGS = Namespace(reward_key=None, log_passrate=True)


def make_sample(
    group: int, rollout: int, reward: object, length: int, status: str = "completed"
) -> Sample:
    sample = Sample(group_index=group, rollout_id=rollout, reward=reward, tokens=[1, 2])
    sample.append_response_tokens(tokens=[3] * length)
    sample.status = Sample.Status(status)
    return sample


def test_a_small_rollout() -> None:
    samples = [
        make_sample(0, 0, 1.0, 4),
        make_sample(0, 1, 0.0, 2, "truncated"),
        make_sample(1, 2, 1.0, 6),  # rollout 2 fanned out into three: it counts once
        make_sample(1, 2, 1.0, 1),
        make_sample(1, 2, 1.0, 1),
        make_sample(1, 3, 1.0, 10),
        make_sample(2, 4, None, 4),
    ]
    samples[0].loss_mask = [1, 0, 0, 1]
    samples[5].remove_sample = True
    metrics = rollout_metrics(ARGS, samples)
    assert metrics == pytest.approx(
        {
            "rollout/raw_reward": 3 / 4,
            "rollout/num_samples": 7,
            "rollout/num_rollouts": 5,
            "rollout/num_groups": 2,
            "rollout/ungraded": 1,
            "rollout/zero_std_ratio": 1 / 2,
            "rollout/zero_std_ratio/1": 1 / 2,
            "rollout/response_tokens": 28,
            "rollout/trained_tokens": 16,
            "rollout/total_tokens": 42,
            "rollout/response_len_mean": 4,
            "rollout/response_len_median": 4,
            "rollout/response_len_max": 10,
            "rollout/prompt_len_mean": 2,
            "rollout/truncated_ratio": 1 / 7,
            "rollout/aborted_ratio": 0,
            "rollout/pass@1": 3 / 4,
            "rollout/pass@2": 1,
        }
    )


def test_dict_rewards_are_read_by_key_and_never_stop_the_run() -> None:
    samples = [make_sample(0, i, {"score": float(i)}, 1) for i in range(2)]
    assert rollout_metrics(Namespace(reward_key="score"), samples)["rollout/raw_reward"] == 0.5
    metrics = rollout_metrics(Namespace(reward_key=None), samples)
    assert metrics["rollout/ungraded"] == 2 and "rollout/raw_reward" not in metrics


def test_a_rollout_of_nothing_has_counts_only() -> None:
    metrics = rollout_metrics(ARGS, [])
    assert metrics["rollout/num_samples"] == 0 and "rollout/response_len_mean" not in metrics


def test_version_3_at_step_7_has_lag_3() -> None:
    assert weight_lag(3, trainer_step=7) == 3
    sample = make_sample(0, 0, 1.0, 1)
    sample.weight_versions = ["3"]
    # Step 7 starts from version 6. What is measured is consumption, so a wait in a queue counts.
    assert values(staleness([sample], trainer_version=6))["weight_lag_mean"] == 3


def test_staleness_is_weighted_by_tokens() -> None:
    mixed, fresh, unknown = (make_sample(0, i, 1.0, 4) for i in range(3))
    mixed.weight_version_spans = [("4", 0, 1), ("5", 1, 4)]
    fresh.weight_version_spans = [("6", 0, 4)]
    unknown.weight_versions = ["default"]
    metrics = rollout_metrics(ARGS, [mixed, fresh, unknown], trainer_version=6)
    assert metrics["rollout/weight_lag_mean"] == pytest.approx((2 * 1 + 1 * 3 + 0 * 4) / 8)
    assert metrics["rollout/weight_lag_max"] == 2
    assert metrics["rollout/off_policy_tokens"] == pytest.approx(4 / 8)
    assert "rollout/weight_lag_mean" not in rollout_metrics(ARGS, [unknown], trainer_version=6)


def test_cache_and_speculation_ratios_are_of_sums() -> None:
    a, b = make_sample(0, 0, 1.0, 1), make_sample(0, 1, 1.0, 1)
    a.prefix_cache_info, b.prefix_cache_info = (
        Sample.PrefixCacheInfo(9, 10),
        Sample.PrefixCacheInfo(0, 90),
    )
    a.spec_info = Sample.SpecInfo(spec_accept_token_num=3, spec_draft_token_num=4)
    metrics = rollout_metrics(ARGS, [a, b])
    assert metrics["rollout/prefix_cache_hit_ratio"] == pytest.approx(9 / 100)
    assert metrics["rollout/spec_accept_ratio"] == pytest.approx(3 / 4)
