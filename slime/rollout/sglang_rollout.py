"""The default rollout function: keep enough groups in flight, take those that pass the filter,
abort the rest."""

import asyncio
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slime.filters.base_types import (
    MetricGatherer,
    call_dynamic_filter,
    should_drop_dynamic_filter_output,
)
from slime.hooks.loading import load_function
from slime.hooks.sample_hooks import set_current_rollout_id
from slime.rollout import async_loop
from slime.rollout.aborting import abort
from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.rollout.engine_requests import get_model_url
from slime.rollout.errors import RolloutError
from slime.rollout.evaluation import eval_rollout
from slime.rollout.generate_state import GenerateState
from slime.rollout.generation import generate, generate_and_rm, generate_and_rm_group
from slime.samples.groups import flatten
from slime.samples.sample import Sample

__all__ = [
    "GenerateState",
    "abort",
    "eval_rollout",
    "generate",
    "generate_and_rm",
    "generate_and_rm_group",
    "generate_rollout",
    "generate_rollout_async",
    "get_model_url",
]

# A filter that dropped this many groups in a row (or ten rollouts' worth of them, if that is more)
# has nothing to keep: with one good group in a hundred, a false alarm has a chance of 4e-5.
_DROPPED_IN_A_ROW = 1000

GetSamples = Callable[[int], list[list[Sample]]]


def generate_rollout(
    args: Namespace, rollout_id: int, data_source: Any, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """One rollout of `--rollout-batch-size` groups, or one evaluation; the published rollout
    function."""
    if evaluation:
        results, _ = async_loop.run(eval_rollout(args, rollout_id))
        return RolloutFnEvalOutput(data=results)
    return async_loop.run(_generate_and_put_back(args, rollout_id, data_source))


async def _generate_and_put_back(
    args: Namespace, rollout_id: int, data_source: Any
) -> RolloutFnTrainOutput:
    output, unfinished = await generate_rollout_async(args, rollout_id, data_source.get_samples)
    if unfinished:
        data_source.add_samples(unfinished)
    return output


async def generate_rollout_async(
    args: Namespace, rollout_id: int, data_source: GetSamples
) -> tuple[RolloutFnTrainOutput, list[list[Sample]]]:
    """Generate until `--rollout-batch-size` groups pass; returns them by index, and groups to
    continue later.

    Raises:
        RolloutError: more groups failed than a rollout has (the message holds the last reason), or
            the filter drops whatever it gets.
    """
    state = GenerateState(args)
    set_current_rollout_id(rollout_id)
    collected = _Collected(args)
    done: set[asyncio.Task[list[Any]]] = set()
    try:
        while len(collected.kept) < args.rollout_batch_size:
            while state.remaining_batch_size < args.rollout_batch_size:
                groups = data_source(args.over_sampling_batch_size)
                if not groups:
                    raise RolloutError(
                        f"the data source has no prompts left for rollout {rollout_id}"
                    )
                state.submit_generate_tasks(groups)
            done, state.pendings = await asyncio.wait(
                state.pendings, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                if not collected.take(task.result(), state.remaining_batch_size):
                    state.remaining_batch_size -= 1
        in_flight = len(state.pendings)
        unfinished = [*collected.surplus, *await abort(args, rollout_id)]
    finally:
        for task in done | state.pendings:
            task.cancel()
            task.add_done_callback(_ignore_exception)
        state.reset()
    metrics = collected.metrics() | {"rollout/aborted_groups": in_flight}
    _call_sample_hooks(args, collected, data_source)
    return RolloutFnTrainOutput(collected.kept, metrics), unfinished if args.partial_rollout else []


def _ignore_exception(task: asyncio.Task[Any]) -> None:
    """Python would print the exceptions that nobody asked for, over the one that ended the run."""
    if not task.cancelled():
        task.exception()


@dataclass
class _Collected:
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

    def take(self, group: list[Any], remaining_batch_size: int) -> bool:
        """Sort a finished group in; False if another has to be generated in its place."""
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
        full = len(self.kept) >= self.args.rollout_batch_size
        (self.surplus if full else self.kept).append(group)
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

    def metrics(self) -> dict[str, Any]:
        """Counts of what was not kept."""
        return {
            **self._gatherer.collect(),
            "rollout/failed_samples": self.failed_samples,
            "rollout/surplus_groups": len(self.surplus),
        }


def _call_sample_hooks(args: Namespace, collected: _Collected, data_source: GetSamples) -> None:
    """Order the groups by index and hand them to the hooks on whole rollouts."""
    for groups in (collected.kept, collected.everything):
        groups.sort(key=lambda group: flatten(group)[0].index or 0)
    if args.rollout_sample_filter_path:
        load_function(args.rollout_sample_filter_path)(args, collected.kept)
    if args.rollout_all_samples_process_path:
        load_function(args.rollout_all_samples_process_path)(
            args, collected.everything, data_source
        )
