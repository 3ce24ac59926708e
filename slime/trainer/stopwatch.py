"""Seconds of named parts of the work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext


class Stopwatch:
    """``seconds`` by name; a part that runs twice counts twice. ``around`` is entered with each."""

    def __init__(self, around: Callable[[str], AbstractContextManager[None]] = nullcontext) -> None:
        self._around = around
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count the time of the block as ``name``."""
        begin = time.perf_counter()
        with self._around(name):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
