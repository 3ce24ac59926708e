"""A grader behind HTTP (`--rm-type remote_rm`, `--rm-url`)."""

import asyncio
from typing import Any

from slime.samples.sample import Sample

_ATTEMPTS = 4
_TIMEOUT_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.5


class RemoteGraderError(RuntimeError):
    """The grader did not answer; the message names its address and the last cause."""


async def remote_rm(url: str, sample: Sample) -> Any:
    """POST {prompt, response, label} to `url`; the answer's JSON is the reward.

    Raises:
        RemoteGraderError: It failed four times in a row (each within 60 s, with growing pauses).
    """
    import aiohttp  # needed by runs with a remote grader only

    payload = {"prompt": sample.prompt, "response": sample.response, "label": sample.label}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    cause: Exception | None = None
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                async with session.post(url, json=payload) as answer:
                    answer.raise_for_status()
                    return await answer.json()
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                cause = error
    raise RemoteGraderError(
        f"--rm-url = {url}: no answer in {_ATTEMPTS} attempts, the last: {cause!r}"
    ) from cause
