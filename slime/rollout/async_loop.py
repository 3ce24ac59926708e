"""One background event loop for the process: synchronous code hands coroutines to it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_WATCH_SECONDS = 1.0

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop, started on first use in a daemon thread. It holds no state of any run."""
    global _loop
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="slime-async-loop", daemon=True).start()
        return _loop


def run(coro: Coroutine[Any, Any, T], watch: Callable[[], None] | None = None) -> T:
    """Run `coro` on the background loop and wait for its result. Not for use on that loop itself.

    An interrupt of the waiting thread cancels the coroutine. So does an error of `watch`, which is
    called every second, by the waiting thread: it sees a loop that stands still.
    """
    future = asyncio.run_coroutine_threadsafe(coro, background_loop())
    try:
        while True:
            try:
                return future.result(timeout=_WATCH_SECONDS if watch else None)
            except TimeoutError:
                if future.done() or watch is None:
                    raise
                watch()
    except BaseException:
        future.cancel()
        raise
