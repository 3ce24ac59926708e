"""Holding the engines still while their weights change, without losing a token."""

import asyncio
from collections.abc import Sequence
from typing import Any

from slime.rollout import async_loop
from slime.rollout.errors import RolloutError
from slime.rollout.http_client import post

# The requests go back into the engine's queue with the tokens they have, and give up their cache:
# it holds keys and values of the old weights, and is computed anew with the new ones.
_MODE = "retract"


def pause_engines(urls: Sequence[str]) -> None:
    """Stop all requests where they are; requests that arrive wait.

    An engine that does not answer is passed over: the update will find out what it is worth.
    """
    async_loop.run(_tell(urls, "/pause_generation", {"mode": _MODE}))


def continue_engines(urls: Sequence[str]) -> None:
    """Go on with the requests, in every engine that answers; health checks find the others."""
    async_loop.run(_tell(urls, "/continue_generation", {}))


async def _tell(urls: Sequence[str], path: str, body: dict[str, Any]) -> None:
    calls = (post(url + path, body, max_retries=3) for url in urls)
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, RolloutError):
            raise result
