"""Staleness: how many updates lie between the weights that made a token and the weights it
trains.
"""

from collections.abc import Iterable, Sequence

from slime.metrics.statistics import Max, Mean, Statistic
from slime.samples.sample import Sample


def weight_lag(version: int, trainer_step: int) -> int:
    """Updates that a token of `version` missed when trainer step `trainer_step` consumes it.

    Versions count updates and steps count from 1: step s turns version s - 1 into version s, so a
    token of version s - 1 has lag 0. Waiting in a queue counts, because the step is that of
    consumption.
    """
    return trainer_step - 1 - version


def staleness(samples: Iterable[Sample], trainer_version: int) -> dict[str, Statistic]:
    """Lag over response tokens: mean, maximum, and the share of tokens with a lag above 0.

    Args:
        samples: What is about to be trained on.
        trainer_version: The version that the training on them starts from.
    """
    lags, counts = [], []
    for sample in samples:
        for version, num_tokens in _versions(sample):
            lags.append(float(weight_lag(version, trainer_version + 1)))
            counts.append(float(num_tokens))
    return {
        "weight_lag_mean": Mean.of(lags, counts),
        "weight_lag_max": Max.of(lags),
        "off_policy_tokens": Mean.of([float(lag > 0) for lag in lags], counts),
    }


def _versions(sample: Sample) -> Sequence[tuple[int, int]]:
    """(version, response tokens) of a sample. Without spans all tokens count as of the oldest
    version.

    Versions that are no numbers (an engine that was never updated) say nothing about lag.
    """
    spans = [(version, end - start) for version, start, end in sample.weight_version_spans]
    if not spans:
        numbered = [int(version) for version in sample.weight_versions if _is_number(version)]
        return [(min(numbered), sample.response_length)] if numbered else []
    return [(int(version), num_tokens) for version, num_tokens in spans if _is_number(version)]


def _is_number(version: str) -> bool:
    return str(version).isdecimal()
