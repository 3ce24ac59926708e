"""How far a long copy is, in a line of its own: bytes, and bytes per second."""

from __future__ import annotations

import sys
import time

_INTERVAL = 1.0  # seconds between two lines, or between two states of one on a terminal


class Progress:
    """Counts bytes; says so on stderr, at most once a second, and not at all if it was quick."""

    def __init__(self, description: str) -> None:
        self._description, self._done = description, 0
        self._begin = self._said = time.monotonic()

    def add(self, nbytes: int) -> None:
        """So many bytes more are done."""
        self._done += nbytes
        if time.monotonic() - self._said >= _INTERVAL:
            self._said = time.monotonic()
            self._say("\r" if sys.stderr.isatty() else "\n")

    def close(self) -> None:
        """All is done."""
        if self._said != self._begin:
            self._say("\n")

    def _say(self, end: str) -> None:
        rate = self._done / max(time.monotonic() - self._begin, 1e-9)
        text = f"{self._description}: {self._done / 1e9:.1f} GB, {rate / 1e9:.2f} GB/s"
        print(text, end=end, file=sys.stderr, flush=True)
