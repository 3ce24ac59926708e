"""Metrics of a rollout that are asked for by option: by category, by turn, of correct samples, and
by source.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from slime.metrics.pass_rate import PASSING_REWARD, pass_rates
from slime.metrics.statistics import Max, Mean, Statistic, Sum
from slime.samples.groups import positions_by, rollout_identities
from slime.samples.packed import as_list, stored
from slime.samples.sample import Sample

_LONGEST_NAME = 60


def reward_categories(samples: Sequence[Sample], key: str) -> dict[str, Statistic]:
    """`category/<value>`: the share of rollouts whose reward mapping has this value at `key`
    (`--log-reward-category`); `category/none` without one. A fanned-out rollout counts once, by its
    last sample.
    """
    rollouts = positions_by(rollout_identities(samples)).values()
    counts = Counter(_category(samples[positions[-1]].reward, key) for positions in rollouts)
    return {f"category/{name}": Mean(n, len(rollouts)) for name, n in sorted(counts.items())}


def turns(samples: Sequence[Sample]) -> dict[str, Statistic]:
    """Turns of multi-turn responses (`--log-multi-turn`): runs of trained tokens, and what an
    environment wrote between them.
    """
    numbers = [_runs(sample) for sample in samples if sample.response_length]
    return {
        "turns_mean": Mean.of(trained for trained, _, _ in numbers),
        "turns_max": Max.of(trained for trained, _, _ in numbers),
        "observations_mean": Mean.of(observed for _, observed, _ in numbers),
        "observation_tokens_mean": Mean.of(tokens for _, _, tokens in numbers),
    }


def correct_samples(
    samples: Sequence[Sample], rewards: Sequence[float | None]
) -> dict[str, Statistic]:
    """How many samples are right, and their lengths (`--log-correct-samples`)."""
    right = [
        sample
        for sample, reward in zip(samples, rewards, strict=True)
        if reward is not None and reward >= PASSING_REWARD
    ]
    lengths = [sample.response_length for sample in right]
    return {
        "correct/num_samples": Sum(len(right)),
        "correct/response_len_mean": Mean.of(lengths),
        "correct/response_len_max": Max.of(lengths),
        "correct/truncated_ratio": Mean.of(
            float(sample.status is Sample.Status.TRUNCATED) for sample in right
        ),
    }


def pass_rates_by_source(
    samples: Sequence[Sample], groups: dict[Any, list[float]], keys: Sequence[Any]
) -> dict[str, float]:
    """`<source>/pass@k` for each prompt set, where samples name theirs (metadata `source_name`).

    Args:
        samples: The samples.
        groups: Rewards of the rollouts of each group.
        keys: The group of each sample, a key of `groups`.
    """
    sources: dict[str, dict[Any, list[float]]] = {}
    for sample, key in zip(samples, keys, strict=True):
        source = sample.metadata.get("source_name")
        if source is not None and key in groups:
            sources.setdefault(str(source), {})[key] = groups[key]
    return {
        f"{source}/{name}": rate
        for source, its_groups in sorted(sources.items())
        for name, rate in pass_rates(its_groups).items()
    }


def _category(reward: Any, key: str) -> str:
    value = reward.get(key) if isinstance(reward, dict) else None
    return "none" if value is None else str(value).replace("/", "_")[:_LONGEST_NAME]


def _runs(sample: Sample) -> tuple[int, int, int]:
    """Runs of trained tokens, runs of others after the first of them, and the latter's tokens."""
    mask = as_list(stored(sample, "loss_mask"))
    mask = [1] * sample.response_length if mask is None else mask
    runs = [(bool(kind), len(list(members))) for kind, members in groupby(mask, bool)]
    if runs and not runs[0][0]:
        runs = runs[1:]
    observed = [length for is_trained, length in runs if not is_trained]
    return len(runs) - len(observed), len(observed), sum(observed)
