"""JSON over HTTP with kept-alive connections, and retries within a budget.

Connections belong to the event loop that uses them. What fails for good is retried with growing
pauses until a number of attempts or a time is used up; before each retry, and again and again while
an answer is outstanding, the liveness check of the run may say that waiting is pointless. So a
request ends with an answer or with an error that names the reason, never in an endless loop.
"""

import asyncio
import math
import random
import time
import weakref
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import orjson

from slime.rollout.errors import RolloutError

T = TypeVar("T")

RETRY_SECONDS = 60.0
"""A request is not tried again when this long has passed since its first failure."""
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_CONNECT_SECONDS = 10.0
_LIVENESS_SECONDS = 5.0  # between two checks while an answer is outstanding
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_SHOWN_BODY_CHARACTERS = 500

_sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = (
    weakref.WeakKeyDictionary()
)
_liveness_checks: dict[str, Callable[[], bool | None]] = {}
"""By server, as host:port: what runs in this process that have servers of their own never meet."""


def set_liveness_check(url: str, check: Callable[[], bool | None] | None) -> None:
    """`check` is called between retries and while requests to the server of `url` wait for their
    answers; it must not block. What it raises (an engine that died, or no longer responds) ends the
    request at once. As long as it returns True, something is being repaired: that time is not
    counted. None: check no more."""
    if check is None:
        _liveness_checks.pop(urlsplit(url).netloc, None)
    else:
        _liveness_checks[urlsplit(url).netloc] = check


def get_rollout_num_engines(args: Namespace) -> int:
    """Number of engines of the run."""
    return int(args.rollout_num_engines)


def init_http_client(args: Namespace) -> None:
    """Kept for callers of the published interface: sessions are opened when a loop first needs
    one."""


async def post(
    url: str, payload: Any, max_retries: int = 60, headers: dict[str, str] | None = None
) -> Any:
    """POST `payload` as JSON and return the JSON answer.

    Raises:
        RolloutError: refused (4xx), or no answer within `max_retries` retries and `RETRY_SECONDS`.
    """
    body = orjson.dumps(payload, option=orjson.OPT_SERIALIZE_NUMPY)
    all_headers = {"Content-Type": "application/json", **(headers or {})}
    return await _request("POST", url, max_retries, data=body, headers=all_headers)


async def get(url: str, max_retries: int = 10) -> Any:
    """GET a JSON answer; raises as `post` does."""
    return await _request("GET", url, max_retries)


async def stream(
    url: str, payload: Any, headers: dict[str, str] | None = None
) -> AsyncIterator[Any]:
    """POST `payload` once and yield the JSON of each server-sent event, until `[DONE]`.

    Raises:
        RolloutError: refused (4xx).
        ConnectionError: everything else: the stream broke, or it never began; what was yielded is
            all there is, and the caller may ask for the rest.
    """
    body = orjson.dumps(payload, option=orjson.OPT_SERIALIZE_NUMPY)
    all_headers = {"Content-Type": "application/json", **(headers or {})}
    try:
        async with _session().post(url, data=body, headers=all_headers) as response:
            if response.status >= 300:
                reason = f"HTTP {response.status}: {_shorten(await response.read())}"
                if response.status not in _RETRIED_STATUS:
                    raise RolloutError(f"POST {url} was refused: {reason}")
                raise ConnectionError(reason)
            buffered = b""
            while chunk := await _watched(url, response.content.readany()):
                *events, buffered = (buffered + chunk).split(b"\n\n")
                for event in events:
                    data = event.removeprefix(b"data:").strip()
                    if data == b"[DONE]":
                        return
                    yield orjson.loads(data)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    raise ConnectionError("the stream ended without [DONE]")


async def close() -> None:
    """Close the running loop's connections."""
    session = _sessions.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()


def _session() -> aiohttp.ClientSession:
    loop = asyncio.get_running_loop()
    session = _sessions.get(loop)
    if session is None or session.closed:
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # the rollout's semaphore is the limit
            # How long a response may take is not known; a dead server is noticed by its connection.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        )
        _sessions[loop] = session
    return session


async def _request(method: str, url: str, max_retries: int, **options: Any) -> Any:
    pause = _FIRST_PAUSE_SECONDS
    first_failure = math.inf
    attempt = 0
    while True:
        try:
            status, content = await _watched(url, _exchange(method, url, options))
            if status < 300:
                return orjson.loads(content) if content else None
            reason = f"HTTP {status}: {_shorten(content)}"
            if status not in _RETRIED_STATUS:
                raise RolloutError(f"{method} {url} was refused: {reason}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"
        now = time.monotonic()
        if check_liveness(url):
            first_failure = math.inf
        else:
            attempt += 1
            first_failure = min(first_failure, now)
            if now - first_failure + pause > RETRY_SECONDS or attempt > max_retries:
                break
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    spent = time.monotonic() - first_failure
    raise RolloutError(
        f"{method} {url} failed {attempt} times in {spent:.1f} s, last with {reason}"
    )


async def _exchange(method: str, url: str, options: dict[str, Any]) -> tuple[int, bytes]:
    """One attempt: status and body of the answer."""
    async with _session().request(method, url, **options) as response:
        return response.status, await response.read()


def check_liveness(url: str) -> bool:
    """Whether something is being repaired at the server of `url`; raises what its check raises."""
    check = _liveness_checks.get(urlsplit(url).netloc)
    return bool(check is not None and check())


async def _watched(url: str, exchange: Coroutine[Any, Any, T]) -> T:
    """The result of `exchange`, for as long as the liveness check does not object.

    How long an answer may take is not known, and a frozen server keeps its connections open.
    """
    task = asyncio.ensure_future(exchange)
    try:
        while not (await asyncio.wait({task}, timeout=_LIVENESS_SECONDS))[0]:
            check_liveness(url)
        return task.result()
    finally:
        task.cancel()


def _shorten(content: bytes) -> str:
    text = content.decode(errors="replace")
    return text[:_SHOWN_BODY_CHARACTERS] + ("..." if len(text) > _SHOWN_BODY_CHARACTERS else "")
