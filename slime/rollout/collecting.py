"""Finished groups of a rollout, sorted into what is trained on and what is not."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any

from slime.filters.base_types import (
    MetricGatherer,
    call_dynamic_filter,
    should_drop_dynamic_filter_output,
)
from slime.hooks.loading import load_function
from slime.rollout.errors import RolloutError
from slime.samples.groups import flatten
from slime.samples.sample import Sample

# A filter that dropped this many groups in a row (or ten rollouts' worth of them, if that is more)
# has nothing to keep: with one good group in a hundred, a false alarm has a chance of 4e-5.
_DROPPED_IN_A_ROW = 1000


@dataclass
class Collected:
    """Finished groups of a rollout, sorted into kept, dropped by the filter, surplus and failed."""

    args: Namespace
    kept: list[Any] = field(default_factory=list)
    everything: list[Any] = field(default_factory=list)
    surplus: list[Any] = field(default_factory=list)
    failed_samples: int = 0
    failed_groups: int = 0
    dropped_in_a_row: int = 0

    def __post_init__(self) -> None:
        path = self.args.dynamic_sampling_filter_path
        self._filter = load_function(path) if path else None
        self._gatherer = MetricGatherer()

    @property
    def is_full(self) -> bool:
        """The rollout has all its groups."""
        return len(self.kept) >= self.args.rollout_batch_size

    def take(self, group: list[Any], remaining_batch_size: int) -> bool:
        """Sort a finished group in; False if another has to be generated in its place.

        `remaining_batch_size`: groups that are kept or may still be kept, this one included.

        Raises:
            RolloutError: more groups failed than a rollout has (the message holds the last reason),
                or the filter drops whatever it gets.
        """
        samples = flatten(group)
        self.everything.append(group)
        failed = [sample for sample in samples if sample.status == Sample.Status.FAILED]
        if failed:
            self._count_failed(failed)
            return False
        if self._filter is not None:
            verdict = call_dynamic_filter(self._filter, self.args, samples)
            if should_drop_dynamic_filter_output(
                verdict,
                remaining_batch_size=remaining_batch_size,
                target_data_size=self.args.rollout_batch_size,
            ):
                self._gatherer.on_dynamic_filter_drop(verdict.reason)
                self._count_dropped(verdict.reason)
                return False
        self.dropped_in_a_row = 0
        (self.surplus if self.is_full else self.kept).append(group)
        return True

    def _count_failed(self, failed: list[Sample]) -> None:
        self.failed_samples += len(failed)
        self.failed_groups += 1
        if self.failed_groups > self.args.rollout_batch_size:
            reason = failed[-1].metadata.get("failure", "no reason was recorded")
            raise RolloutError(
                f"{self.failed_groups} groups ({self.failed_samples} samples) failed in one "
                f"rollout, the last one because: {reason}"
            )

    def _count_dropped(self, reason: str | None) -> None:
        self.dropped_in_a_row += 1
        if self.dropped_in_a_row >= max(_DROPPED_IN_A_ROW, 10 * self.args.rollout_batch_size):
            raise RolloutError(
                f"--dynamic-sampling-filter-path = {self.args.dynamic_sampling_filter_path}: it "
                f"dropped {self.dropped_in_a_row} groups in a row (the last: {reason}), and "
                f"{len(self.kept)} of the {self.args.rollout_batch_size} groups of a rollout are "
                "kept; are all prompts too easy or too hard, or is the filter wrong?"
            )

    def finish(self, data_source: Any) -> None:
        """Order the groups by index and hand them to the hooks on whole rollouts."""
        for groups in (self.kept, self.everything):
            groups.sort(key=lambda group: flatten(group)[0].index or 0)
        if self.args.rollout_sample_filter_path:
            load_function(self.args.rollout_sample_filter_path)(self.args, self.kept)
        if self.args.rollout_all_samples_process_path:
            load_function(self.args.rollout_all_samples_process_path)(
                self.args, self.everything, data_source
            )

    def metrics(self) -> dict[str, Any]:
        """Counts of what was not kept."""
        return {
            **self._gatherer.collect(),
            "rollout/failed_samples": self.failed_samples,
            "rollout/surplus_groups": len(self.surplus),
        }
