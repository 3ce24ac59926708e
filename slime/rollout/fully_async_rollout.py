"""Fully asynchronous rollouts: a worker keeps generating while the trainer trains.

`--rollout-function-path slime.rollout.fully_async_rollout.generate_rollout_fully_async`, run by
`slime.train_async`. Finished groups are trained on in the order they were begun in. A response
may go on through updates of the weights; each of its tokens carries the version that made it. Two
bounds keep the data fresh (`--max-weight-lag`): so few groups are begun ahead that they rarely get
too old, and a group that did is not trained on but generated anew.
"""

import asyncio
import heapq
import itertools
import math
from argparse import Namespace
from collections import deque
from typing import Any

from slime.hooks.sample_hooks import set_current_rollout_id
from slime.rollout import async_loop
from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.rollout.collecting import Collected
from slime.rollout.errors import RolloutError
from slime.rollout.generate_state import GenerateState
from slime.rollout.generation import generate_and_rm_group
from slime.rollout.sglang_rollout import run_evaluation, run_watched
from slime.samples.groups import flatten, oldest_weight_version
from slime.samples.sample import Sample

_ATTRIBUTE = "async_rollout_worker"
_STOP_SECONDS = 5.0
_MOST_ABORTED_IN_A_ROW = 1000
Group = list[Sample]
Begun = tuple[int, Group]
"""A group's place in the order, and the group."""


def generate_rollout_fully_async(
    args: Namespace, rollout_id: int, data_buffer: Any, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """The next `--rollout-batch-size` groups of the run's worker, which the first call starts; an
    evaluation is made beside it.

    Raises:
        RolloutError: as `slime.rollout.sglang_rollout.generate_rollout` does.
    """
    if evaluation:
        return run_evaluation(args, rollout_id)
    worker = getattr(args, _ATTRIBUTE, None)
    if worker is None:
        worker = AsyncRolloutWorker(args, data_buffer, concurrency=_most_open(args))
        setattr(args, _ATTRIBUTE, worker)
    output = run_watched(args, worker.collect(rollout_id))
    if args.num_rollout is not None and rollout_id == args.num_rollout - 1:
        stop_worker(args)
    return output


# For the rollout manager: it generates between its calls, and commits to the data source itself.
generate_rollout_fully_async.in_background = True  # type: ignore[attr-defined]


def stop_worker(args: Namespace) -> None:
    """End the worker of a run, if it has one."""
    worker = getattr(args, _ATTRIBUTE, None)
    if worker is not None:
        worker.stop()


def _most_open(args: Namespace) -> int:
    """Groups that may be begun and not yet trained on, a rollout that waits for the trainer
    included.

    When the collection of rollout r begins, r - 1 begins to train, with weights of version r - 1.
    With n rollouts' worth of groups open, one begun from now on is trained on by rollout
    r + n - 1 at the latest: its lag is at most n, if each rollout updates the weights.
    """
    rollouts = args.max_weight_lag - (args.update_weights_interval - 1)
    return max(1, rollouts) * int(args.rollout_batch_size)


class AsyncRolloutWorker:
    """Keeps up to `concurrency` groups in flight on the process's background event loop.

    The public methods are for other threads, `collect` is a coroutine of that loop.
    """

    def __init__(self, args: Namespace, data_buffer: Any, concurrency: int = 10) -> None:
        """Nothing is begun before `start` or the first `collect`."""
        self._args, self._source = args, data_buffer
        self._state = GenerateState(args)
        self._concurrency = concurrency
        self._numbers = itertools.count()
        self._in_flight: dict[asyncio.Task[list[Any]], Begun] = {}
        self._completed: list[tuple[int, list[Any], Group]] = []  # a heap
        self._again: deque[Begun] = deque()  # to be begun before new groups
        self._news = asyncio.Event()
        self._running = False
        self._error: BaseException | None = None
        self._aborted_in_a_row = 0
        self._rollout_id: int | None = None
        self._num_kept = 0  # of the rollout that is being collected, or waits for the trainer
        self._busy_seconds = self._state.engines_busy.seconds

    def start(self) -> None:
        """Begin to generate."""
        async_loop.run(self._start())

    def stop(self) -> None:
        """Cancel what is in flight. Finished groups can still be fetched, the others go back to the
        data source, as they were handed out."""
        async_loop.run(self._stop())

    def get_completed_groups(self, limit: int | None = None) -> list[tuple[int, list[Sample]]]:
        """Take finished groups out, at most `limit`, each with its place in the order."""

        async def take() -> list[tuple[int, list[Sample]]]:
            count = len(self._completed) if limit is None else min(limit, len(self._completed))
            taken = [heapq.heappop(self._completed)[:2] for _ in range(count)]
            self._fill()
            return taken

        return async_loop.run(take())

    def queue_size(self) -> int:
        """Finished groups that nobody has fetched yet."""
        return len(self._completed)

    async def collect(self, rollout_id: int) -> RolloutFnTrainOutput:
        """The groups of a rollout; the data source then knows what is open, for a resume.

        Raises:
            RolloutError: as `slime.rollout.collecting.Collected`.
        """
        set_current_rollout_id(None)  # the source must not take this for a rollout's own prompts
        self._rollout_id, self._num_kept = rollout_id, 0
        collected, stale = Collected(self._args), set()
        await self._start()
        while not collected.is_full:
            number, group, origin = await self._next_completed()
            if self._is_stale(group, rollout_id, is_new=number in stale):
                stale.add(number)
                self._again.append((number, origin))
            else:
                collected.take(group, len(collected.kept) + 1 + self._num_open())
                self._num_kept = len(collected.kept)
            self._fill()
        if hasattr(self._source, "commit"):
            self._source.commit(rollout_id, in_flight=self._open_groups())
        collected.finish(self._source)
        return RolloutFnTrainOutput(collected.kept, collected.metrics() | self._metrics(len(stale)))

    def _is_stale(self, group: list[Any], rollout_id: int, is_new: bool) -> bool:
        oldest, most = oldest_weight_version(flatten(group)), self._args.max_weight_lag
        stale = oldest is not None and rollout_id - oldest > most
        if stale and is_new:  # else it would be generated again and again
            raise RolloutError(
                f"rollout {rollout_id} gets tokens of weights {oldest}, just generated: the "
                f"engines were not updated in time for --max-weight-lag = {most}"
            )
        return stale

    def _metrics(self, stale: int) -> dict[str, Any]:
        before, self._busy_seconds = self._busy_seconds, self._state.engines_busy.seconds
        return {
            "rollout/stale_groups": stale,
            "rollout/queued_groups": len(self._completed),
            "rollout/groups_in_flight": len(self._in_flight),
            "perf/engines_busy_seconds": self._busy_seconds - before,
        }

    async def _start(self) -> None:
        self._running = True
        self._fill()

    async def _next_completed(self) -> tuple[int, list[Any], Group]:
        while not self._completed:
            self._raise_error()
            if not self._in_flight:
                raise RolloutError("the data source has no prompts left")
            self._news.clear()
            await self._news.wait()
        self._raise_error()
        return heapq.heappop(self._completed)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _num_open(self) -> int:
        return len(self._in_flight) + len(self._completed) + len(self._again)

    def _open_groups(self) -> list[Group]:
        completed = [(number, origin) for number, _, origin in self._completed]
        begun = [*self._in_flight.values(), *completed, *self._again]
        return [group for _, group in sorted(begun, key=lambda one: one[0])]

    def _fill(self) -> None:
        """Begin groups, up to the bounds: what is finished and waits counts too."""
        if not self._running or self._error is not None:
            return
        most = min(_most_open(self._args), self._left_in_run()) - self._num_kept
        while len(self._in_flight) < min(self._concurrency, most - len(self._completed)):
            try:
                begun = self._again.popleft() if self._again else self._new_group()
            except Exception as error:  # of a user's source; in a callback nobody would see it
                self._error = error
                self._news.set()
                return
            if begun is None:
                return
            self._begin(*begun)

    def _left_in_run(self) -> float:
        """Groups that the run still trains on, those of the present rollout included."""
        if self._args.num_rollout is None or self._rollout_id is None:
            return math.inf
        return (self._args.num_rollout - self._rollout_id) * int(self._args.rollout_batch_size)

    def _new_group(self) -> Begun | None:
        groups = self._source.get_samples(1)
        return (next(self._numbers), groups[0]) if groups else None

    def _begin(self, number: int, group: Group) -> None:
        origin = [sample.as_handed_out() for sample in group]
        task = asyncio.create_task(self._generate(group))
        self._in_flight[task] = (number, origin)
        task.add_done_callback(self._finished)

    async def _generate(self, group: Group) -> list[Any]:
        set_current_rollout_id(self._rollout_id)
        return await generate_and_rm_group(self._args, group, dict(self._state.sampling_params))

    def _finished(self, task: asyncio.Task[list[Any]]) -> None:
        number, origin = self._in_flight.pop(task)
        if task.cancelled():
            self._again.append((number, origin))
        elif error := task.exception():
            self._error = self._error or error
        elif any(sample.status == Sample.Status.ABORTED for sample in flatten(task.result())):
            self._go_on_later(number, task.result(), origin)
        else:
            self._aborted_in_a_row = 0
            heapq.heappush(self._completed, (number, task.result(), origin))
        self._news.set()
        self._fill()

    def _go_on_later(self, number: int, group: list[Any], origin: Group) -> None:
        """Somebody else aborted a group: it keeps its tokens; one that fanned out begins anew."""
        self._aborted_in_a_row += 1
        if self._aborted_in_a_row > _MOST_ABORTED_IN_A_ROW:
            message = f"the engines aborted {self._aborted_in_a_row} groups in a row; who does?"
            self._error = self._error or RolloutError(message)
        fanned_out = any(isinstance(item, list) for item in group)
        self._again.append((number, origin if fanned_out else group))

    async def _stop(self) -> None:
        """Cancel what is in flight: an engine stops a response that nobody waits for, while those
        of an evaluation go on."""
        self._running = False
        tasks = list(self._in_flight)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        unfinished = [group for _, group in sorted(self._again, key=lambda begun: begun[0])]
        self._again.clear()
        if unfinished and getattr(self._source, "has_buffer", False):
            self._source.add_samples(unfinished)
