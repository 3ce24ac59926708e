"""Ending what is still being generated once a rollout has what it needs."""

import asyncio
from argparse import Namespace
from typing import Any

from slime.rollout.engine_requests import get_model_url
from slime.rollout.errors import RolloutError
from slime.rollout.generate_state import GenerateState
from slime.rollout.http_client import get, post
from slime.samples.groups import flatten
from slime.samples.sample import Sample

_REPEAT_SECONDS = 0.5


async def abort(args: Namespace, rollout_id: int) -> list[list[Sample]]:
    """Abort all requests in flight and wait for their tasks.

    Returns the unfinished groups, with the tokens they have, when they can be continued
    (`--partial-rollout`), else an empty list. Groups that finished meanwhile are returned as well:
    they need no more tokens.
    """
    state = GenerateState(args)
    state.aborted = True
    groups: list[list[Sample]] = []
    while state.pendings:
        await _abort_engines(args)
        # A request may still have been on its way to the engine; it is caught by the next round.
        done, state.pendings = await asyncio.wait(state.pendings, timeout=_REPEAT_SECONDS)
        groups += [task.result() for task in done]
    if not args.partial_rollout:
        return []
    for sample in (sample for group in groups for sample in flatten(group)):
        if sample.response_length and "start_rollout_id" not in sample.metadata:
            sample.metadata["start_rollout_id"] = rollout_id
    return groups


async def _abort_engines(args: Namespace) -> None:
    """The router forwards no aborts, so every engine behind it is asked.

    One that does not answer is asked again in the next round, if it is still there.
    """
    listed: dict[str, Any] = await get(get_model_url(args, "default", "/workers"))
    urls = [worker["url"] for worker in listed["workers"]]
    requests = (post(f"{url}/abort_request", {"abort_all": True}, max_retries=0) for url in urls)
    for result in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, RolloutError):
            raise result
