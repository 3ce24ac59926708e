"""The default rollout function: keep enough groups in flight, take those that pass the filter,
abort the rest."""

import asyncio
from argparse import Namespace
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from slime.hooks.sample_hooks import set_current_rollout_id
from slime.rollout import async_loop
from slime.rollout.aborting import abort
from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.rollout.collecting import Collected
from slime.rollout.engine_requests import get_model_url
from slime.rollout.errors import RolloutError
from slime.rollout.evaluation import eval_rollout
from slime.rollout.generate_state import GenerateState
from slime.rollout.generation import generate, generate_and_rm, generate_and_rm_group
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

T = TypeVar("T")
GetSamples = Callable[[int], list[list[Sample]]]


def generate_rollout(
    args: Namespace, rollout_id: int, data_source: Any, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """One rollout of `--rollout-batch-size` groups, or one evaluation; the published rollout
    function.

    Raises:
        RolloutError: as `generate_rollout_async`, or nothing was finished for
            `--rollout-stall-timeout` seconds (this is noticed even where a user's function blocks
            the event loop).
    """
    if evaluation:
        return run_evaluation(args, rollout_id)
    return run_watched(args, _generate_and_put_back(args, rollout_id, data_source))


def run_evaluation(args: Namespace, rollout_id: int) -> RolloutFnEvalOutput:
    """All evaluation sets, for synchronous callers."""
    results, _ = run_watched(args, eval_rollout(args, rollout_id))
    return RolloutFnEvalOutput(data=results)


def run_watched(args: Namespace, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the background loop; it may not stand still for `--rollout-stall-timeout`."""
    progress = GenerateState(args).progress
    return async_loop.run(work, watch=lambda: progress.check(args.rollout_stall_timeout))


async def _generate_and_put_back(
    args: Namespace, rollout_id: int, data_source: Any
) -> RolloutFnTrainOutput:
    output, unfinished = await generate_rollout_async(args, rollout_id, data_source.get_samples)
    if unfinished and (args.partial_rollout or getattr(data_source, "has_buffer", False)):
        data_source.add_samples(unfinished)
    return output


async def generate_rollout_async(
    args: Namespace, rollout_id: int, data_source: GetSamples
) -> tuple[RolloutFnTrainOutput, list[list[Sample]]]:
    """Generate until `--rollout-batch-size` groups pass; returns them by index, and groups to
    continue later: with `--partial-rollout` all that are unfinished or left over, else those that
    were still being graded (they start anew).

    Raises:
        RolloutError: more groups failed than a rollout has (the message holds the last reason), or
            the filter drops whatever it gets.
    """
    state = GenerateState(args)
    set_current_rollout_id(rollout_id)
    collected = Collected(args)
    done: set[asyncio.Task[list[Any]]] = set()
    busy = state.engines_busy.seconds
    try:
        while not collected.is_full:
            while state.remaining_batch_size < args.rollout_batch_size:
                state.submit_generate_tasks(_next_groups(args, rollout_id, data_source))
            done, state.pendings = await asyncio.wait(
                state.pendings, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                if not collected.take(task.result(), state.remaining_batch_size):
                    state.remaining_batch_size -= 1
        in_flight = len(state.pendings)
        unfinished = await abort(args, rollout_id)
    finally:
        for task in done | state.pendings:
            task.cancel()
            task.add_done_callback(_ignore_exception)
        state.reset()
    metrics = collected.metrics() | {
        "rollout/aborted_groups": in_flight,
        "perf/engines_busy_seconds": state.engines_busy.seconds - busy,
    }
    collected.finish(data_source)
    surplus = collected.surplus if args.partial_rollout else []
    return RolloutFnTrainOutput(collected.kept, metrics), [*surplus, *unfinished]


def _next_groups(args: Namespace, rollout_id: int, data_source: GetSamples) -> list[list[Sample]]:
    groups = data_source(args.over_sampling_batch_size)
    if not groups:
        raise RolloutError(f"the data source has no prompts left for rollout {rollout_id}")
    return groups


def _ignore_exception(task: asyncio.Task[Any]) -> None:
    """Python would print the exceptions that nobody asked for, over the one that ended the run."""
    if not task.cancelled():
        task.exception()
