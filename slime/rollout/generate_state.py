"""What one run keeps between its generation calls. It hangs on the run's arguments, so two runs
never meet."""

import asyncio
import weakref
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from slime.rollout.progress import BusyClock, Progress
from slime.rollout.sampling import train_sampling_params
from slime.rollout.tokenizer import load_processor, load_tokenizer
from slime.samples.sample import Sample

_ATTRIBUTE = "generate_state"


class GenerateState:
    """`GenerateState(args)` gives the state of the run that `args` belongs to, made on first use.

    Attributes:
        semaphore: Limits requests in flight.
        sampling_params: The rollout's sampling parameters; copy before changing.
        pendings: Groups being generated, as tasks.
        remaining_batch_size: Groups submitted and not dropped since `reset`.
        progress: What is being waited for; to notice a run that hangs.
        engines_busy: Counts the seconds in which a request is being answered.
        group_of: The group that each task of `pendings` generates.
        aborted: True from the moment a rollout has what it needs until `reset`.
        eval_prompts: Loaded evaluation sets by their cache key.
    """

    args: Namespace
    semaphore: asyncio.Semaphore
    sampling_params: dict[str, Any]
    eval_prompts: dict[Any, list[Sample]]
    pendings: set[asyncio.Task[list[Any]]]
    remaining_batch_size: int
    progress: Progress
    engines_busy: BusyClock
    group_of: weakref.WeakKeyDictionary[asyncio.Task[list[Any]], list[Sample]]
    aborted: bool
    _dp_load: list[int]

    def __new__(cls, args: Namespace) -> "GenerateState":
        """The state that hangs on `args`."""
        state = getattr(args, _ATTRIBUTE, None)
        if isinstance(state, cls):
            return state
        state = super().__new__(cls)
        state.args = args
        state.semaphore = asyncio.Semaphore(
            args.sglang_server_concurrency * max(args.rollout_num_engines, 1)
        )
        state.sampling_params = train_sampling_params(args)
        state.eval_prompts = {}
        state.progress = Progress()
        state.engines_busy = BusyClock()
        state.group_of = weakref.WeakKeyDictionary()
        state._dp_load = [0] * int(args.sglang_server_args.get("dp_size") or 1)
        state.reset()
        setattr(args, _ATTRIBUTE, state)
        return state

    def __init__(self, args: Namespace) -> None:
        pass  # the published constructor; __new__ has done the work, once for each run

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        # Copies of the arguments that go to other processes leave the state behind.
        return (type(None), ())

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return load_tokenizer(self.args.hf_checkpoint)

    @cached_property
    def processor(self) -> Any:
        """The model's multimodal processor."""
        return load_processor(self.args.hf_checkpoint)

    @contextmanager
    def dp_rank_context(self) -> Iterator[int]:
        """The data-parallel rank of an engine with the fewest requests, counted as busy inside the
        context."""
        rank = min(range(len(self._dp_load)), key=self._dp_load.__getitem__)
        self._dp_load[rank] += 1
        try:
            yield rank
        finally:
            self._dp_load[rank] -= 1

    def reset(self) -> None:
        """Ready for the next rollout."""
        self.pendings = set()
        self.remaining_batch_size = 0
        self.aborted = False

    def submit_generate_tasks(self, samples: list[list[Sample]]) -> None:
        """Start generating these groups; the tasks are added to `pendings`. To be called on the
        event loop."""
        from slime.rollout.generation import generate_and_rm_group  # it needs this module itself

        for group in samples:
            coroutine = generate_and_rm_group(self.args, group, dict(self.sampling_params))
            task = asyncio.create_task(coroutine)
            self.group_of[task] = group
            self.pendings.add(task)
        self.remaining_batch_size += len(samples)
