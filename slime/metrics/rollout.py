"""Metrics of one rollout."""

import math
import statistics as order
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from slime.metrics.breakdowns import (
    correct_samples,
    pass_rates_by_source,
    reward_categories,
    turns,
)
from slime.metrics.pass_rate import pass_rates
from slime.metrics.staleness import staleness
from slime.metrics.statistics import Max, Mean, Statistic, Sum, values
from slime.samples.groups import positions_by, rollout_identities
from slime.samples.packed import stored
from slime.samples.sample import Sample

Status = Sample.Status


def rollout_metrics(
    args: Namespace, samples: Sequence[Sample], trainer_version: int | None = None
) -> dict[str, float]:
    """All metrics of a rollout under `rollout/`.

    raw_reward (mean over rollouts: a fanned-out rollout counts once), response_len_mean/median/max,
    prompt_len_mean, response_tokens, trained_tokens, total_tokens (sums), truncated_ratio,
    aborted_ratio, num_samples, num_rollouts, num_groups, ungraded (rollouts without a numeric
    reward: skipped above), zero_std_ratio (groups whose rewards are all equal) and
    zero_std_ratio/<reward> (those with this reward), weight_lag_* and off_policy_tokens (see
    `staleness`), prefix_cache_hit_ratio, spec_accept_ratio. With `--log-passrate` pass@k over all
    groups and by source; with `--log-reward-category`, `--log-multi-turn`, `--log-correct-samples`
    see `slime.metrics.breakdowns`.

    Args:
        args: reward_key, log_passrate, log_reward_category, log_multi_turn, log_correct_samples.
        samples: The samples that will be trained on.
        trainer_version: The weight version that the training starts from; without it there is no
            staleness.
    """
    numbers = values(sample_statistics(samples))
    numbers |= _group_metrics(args, samples)
    lengths = [sample.response_length for sample in samples]
    if lengths:
        numbers["response_len_median"] = float(order.median(lengths))
    if trainer_version is not None:
        numbers |= values(staleness(samples, trainer_version))
    return {f"rollout/{name}": number for name, number in numbers.items()}


def sample_statistics(samples: Sequence[Sample]) -> dict[str, Statistic]:
    """What is counted sample by sample; parts of a rollout may be merged."""
    lengths = [sample.response_length for sample in samples]
    prompts = [len(stored(s, "tokens")) - s.response_length for s in samples]
    trained = (0 if s.remove_sample else s.effective_response_length for s in samples)
    cached = [s.prefix_cache_info for s in samples]
    drafts = [s.spec_info for s in samples]
    return {
        "num_samples": Sum(len(samples)),
        "response_tokens": Sum(sum(lengths)),
        "trained_tokens": Sum(sum(trained)),
        "total_tokens": Sum(sum(lengths) + sum(prompts)),
        "response_len_mean": Mean.of(lengths),
        "response_len_max": Max.of(lengths),
        "prompt_len_mean": Mean.of(prompts),
        "truncated_ratio": Mean.of(float(s.status is Status.TRUNCATED) for s in samples),
        "aborted_ratio": Mean.of(float(s.status is Status.ABORTED) for s in samples),
        "prefix_cache_hit_ratio": Mean(
            sum(c.cached_tokens for c in cached), sum(c.total_prompt_tokens for c in cached)
        ),
        "spec_accept_ratio": Mean(
            sum(d.spec_accept_token_num for d in drafts),
            sum(d.spec_draft_token_num for d in drafts),
        ),
    }


def rollout_rewards(samples: Sequence[Sample], rewards: Sequence[Any]) -> dict[Any, list[float]]:
    """Rewards of the rollouts of each group, by identity; what has no numeric reward is left out.

    A sample without a group is one of its own.

    Args:
        samples: The samples.
        rewards: Of each sample; None where it has none.
    """
    rollouts = positions_by(rollout_identities(samples))
    groups: dict[Any, list[float]] = {}
    for rollout, positions in rollouts.items():
        graded = [float(rewards[p]) for p in positions if is_number(rewards[p])]
        if graded:
            key = _group_key(samples[positions[0]], rollout)
            groups.setdefault(key, []).append(math.fsum(graded) / len(graded))
    return groups


def is_number(reward: Any) -> bool:
    """Whether a reward is a finite number."""
    return isinstance(reward, int | float) and math.isfinite(reward)


def _group_key(sample: Sample, rollout: int) -> tuple[str, int]:
    return ("rollout", rollout) if sample.group_index is None else ("group", sample.group_index)


def _group_metrics(args: Namespace, samples: Sequence[Sample]) -> dict[str, float]:
    rewards = [_reward(args, sample) for sample in samples]
    groups = rollout_rewards(samples, rewards)
    every_rollout = [value for group in groups.values() for value in group]
    num_rollouts = len(set(rollout_identities(samples)))
    compared = [group for group in groups.values() if len(group) > 1]
    numbers: dict[str, Statistic] = {
        "raw_reward": Mean.of(every_rollout),
        "num_rollouts": Sum(num_rollouts),
        "num_groups": Sum(len(groups)),
        "ungraded": Sum(num_rollouts - len(every_rollout)),
        "zero_std_ratio": Mean.of(float(min(group) == max(group)) for group in compared),
    }
    for level in sorted({group[0] for group in compared if min(group) == max(group)}):
        equal = (float(min(group) == max(group) == level) for group in compared)
        numbers[f"zero_std_ratio/{level:.6g}"] = Mean.of(equal)
    numbers |= _optional_statistics(args, samples, rewards)
    rates: dict[str, float] = {}
    if getattr(args, "log_passrate", False):
        keys = [_group_key(s, r) for s, r in zip(samples, rollout_identities(samples), strict=True)]
        rates = pass_rates(groups) | pass_rates_by_source(samples, groups, keys)
    return values(numbers) | rates


def _optional_statistics(
    args: Namespace, samples: Sequence[Sample], rewards: Sequence[Any]
) -> dict[str, Statistic]:
    numbers: dict[str, Statistic] = {}
    if key := getattr(args, "log_reward_category", None):
        numbers |= reward_categories(samples, key)
    if getattr(args, "log_multi_turn", False):
        numbers |= turns(samples)
    if getattr(args, "log_correct_samples", False):
        numbers |= correct_samples(samples, [r if is_number(r) else None for r in rewards])
    return numbers


def _reward(args: Namespace, sample: Sample) -> Any:
    """The number to train on; None where it has none (metrics never stop a run)."""
    if isinstance(sample.reward, dict):
        return sample.reward.get(str(getattr(args, "reward_key", None)))
    return sample.reward
