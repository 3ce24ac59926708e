"""Metrics of one evaluation set."""

from collections.abc import Mapping
from typing import Any

from slime.metrics.pass_rate import pass_rates
from slime.metrics.rollout import is_number, rollout_rewards
from slime.metrics.statistics import Max, Mean, Statistic, Sum, values


def eval_metrics(name: str, result: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of evaluation set `name`: `eval/<name>` is its mean reward.

    Beside it, under `eval/<name>/`: num_samples, ungraded (without a numeric reward: skipped in the
    mean), truncated_ratio, response_len_mean, response_len_max, and pass@k where prompts have
    several responses.

    Args:
        name: The set.
        result: `rewards` (per sample), and where the rollout function gives them `truncated` and
            `samples`.
    """
    rewards = list(result["rewards"])
    graded = [float(reward) for reward in rewards if is_number(reward)]
    numbers: dict[str, Statistic] = {
        "num_samples": Sum(len(rewards)),
        "ungraded": Sum(len(rewards) - len(graded)),
        "truncated_ratio": Mean.of(float(flag) for flag in result.get("truncated") or ()),
    }
    rates: dict[str, float] = {}
    if samples := result.get("samples"):
        lengths = [sample.response_length for sample in samples]
        numbers["response_len_mean"] = Mean.of(lengths)
        numbers["response_len_max"] = Max.of(lengths)
        groups = rollout_rewards(samples, rewards)
        if any(len(group) > 1 for group in groups.values()):
            rates = pass_rates(groups)
    score = values({f"eval/{name}": Mean.of(graded)})
    details = values(numbers) | rates
    return score | {f"eval/{name}/{key}": number for key, number in details.items()}
