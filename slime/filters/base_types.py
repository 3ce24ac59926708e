"""What a dynamic sampling filter answers, how it is called, and the count of what it dropped."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class DynamicFilterOutput:
    """A filter's answer for one group.

    Attributes:
        keep: Train on the group.
        reason: Why it is dropped; counted in the metrics under this name.
        keep_when_insufficient: Keep it all the same when no more groups remain than are needed.
    """

    keep: bool
    reason: str | None = None
    keep_when_insufficient: bool = False


def call_dynamic_filter(
    fn: Callable[..., Any] | None, *args: Any, **kwargs: Any
) -> DynamicFilterOutput:
    """Call `fn`; without a filter everything is kept, and a plain bool is taken as `keep`.

    Raises:
        TypeError: The filter answered something else.
    """
    if fn is None:
        return DynamicFilterOutput(keep=True)
    output = fn(*args, **kwargs)
    if isinstance(output, DynamicFilterOutput):
        return output
    if isinstance(output, bool):
        return DynamicFilterOutput(keep=output)
    name = getattr(fn, "__qualname__", repr(fn))
    raise TypeError(f"the filter {name} returned {output!r}; DynamicFilterOutput or bool is needed")


def should_drop_dynamic_filter_output(
    output: DynamicFilterOutput, *, remaining_batch_size: int, target_data_size: int
) -> bool:
    """Whether the group goes.

    Args:
        output: The filter's answer.
        remaining_batch_size: Groups that are kept or may still be kept, this one included.
        target_data_size: Groups the rollout needs.
    """
    if output.keep:
        return False
    return not (output.keep_when_insufficient and remaining_batch_size <= target_data_size)


class MetricGatherer:
    """Counts dropped groups by reason."""

    def __init__(self) -> None:
        self._drops: Counter[str] = Counter()

    def on_dynamic_filter_drop(self, reason: str | None) -> None:
        """Count one dropped group."""
        self._drops[reason or "unnamed"] += 1

    def collect(self) -> dict[str, int]:
        """`rollout/dynamic_filter/drop_<reason>` for each reason seen."""
        return {f"rollout/dynamic_filter/drop_{r}": n for r, n in sorted(self._drops.items())}
