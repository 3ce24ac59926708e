"""What a rollout function returns, and the one way to call it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slime.samples.sample import Sample


@dataclass
class RolloutFnTrainOutput:
    """Groups of samples to train on; a rollout that fanned out stands in its group as a list."""

    samples: list[list[Sample]]
    metrics: dict[str, Any] | None = None


@dataclass
class RolloutFnEvalOutput:
    """Per data set: `rewards`, `truncated` and `samples`, lists of equal length."""

    data: dict[str, dict[str, Any]]
    metrics: dict[str, Any] | None = None


def call_rollout_fn(
    fn: Callable[..., Any], *args: Any, evaluation: bool, **kwargs: Any
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """Call a rollout function; one that returns bare samples or bare eval data is wrapped."""
    output = fn(*args, evaluation=evaluation, **kwargs)
    if isinstance(output, RolloutFnTrainOutput | RolloutFnEvalOutput):
        return output
    return RolloutFnEvalOutput(data=output) if evaluation else RolloutFnTrainOutput(samples=output)
