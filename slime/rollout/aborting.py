"""Ending what is still being generated once a rollout has what it needs."""

import asyncio
import copy
import time
from argparse import Namespace

from slime.rollout.engine_requests import router_urls
from slime.rollout.errors import RolloutError
from slime.rollout.generate_state import GenerateState
from slime.rollout.http_client import get, post
from slime.samples.groups import flatten
from slime.samples.sample import Sample

_REPEAT_SECONDS = 0.5
_CANCEL_SECONDS = 1.0
_UNFINISHED = (Sample.Status.PENDING, Sample.Status.ABORTED)


async def abort(args: Namespace, rollout_id: int) -> list[list[Sample]]:
    """Abort all requests in flight and wait for their tasks, at most `--rollout-abort-grace`
    seconds: a slow grader does not hold up a finished batch.

    Returns what is to be handed out again. With `--partial-rollout` these are all groups, with the
    tokens they have (those that finished meanwhile need no more); else only those cut off after the
    grace, as if they had never begun.
    """
    state = GenerateState(args)
    state.aborted = True
    groups: list[list[Sample]] = []
    deadline = time.monotonic() + args.rollout_abort_grace
    while state.pendings and time.monotonic() < deadline:
        await _abort_engines(args)
        # A request may still have been on its way to the engine; it is caught by the next round.
        done, state.pendings = await asyncio.wait(state.pendings, timeout=_REPEAT_SECONDS)
        groups += [task.result() for task in done]
    cut = await _cut_off(args, state)
    if not args.partial_rollout:
        return cut
    groups += cut
    for sample in (sample for group in groups for sample in flatten(group)):
        if sample.response_length and "start_rollout_id" not in sample.metadata:
            sample.metadata["start_rollout_id"] = rollout_id
    return groups


async def _abort_engines(args: Namespace) -> None:
    """Abort what the engines generate. No router forwards that, so every engine is asked.

    One that does not answer is asked again in the next round, if it is still there.
    """
    listed = await asyncio.gather(*(get(f"{url}/workers") for url in router_urls(args)))
    urls = [worker["url"] for answer in listed for worker in answer["workers"]]
    requests = (post(f"{url}/abort_request", {"abort_all": True}, max_retries=0) for url in urls)
    for result in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, RolloutError):
            raise result


async def _cut_off(args: Namespace, state: GenerateState) -> list[list[Sample]]:
    """Cancel what is left, and give its groups back as copies: a cancelled function of a user may
    go on writing into the originals."""
    tasks, state.pendings = state.pendings, set()
    for task in tasks:
        task.cancel()
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # not printed
    if tasks:
        await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
    return [[_again(args, sample) for sample in state.group_of[task]] for task in tasks]


def _again(args: Namespace, sample: Sample) -> Sample:
    """What of a cancelled sample can be used: a finished response, or nothing."""
    if args.partial_rollout and sample.status not in _UNFINISHED:
        return copy.deepcopy(sample)
    return sample.as_handed_out()
