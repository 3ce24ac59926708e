"""How far a long copy of weights is, in a line of its own: bytes, their share, bytes per second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch

_INTERVAL = 1.0  # seconds between two lines, or between two states of one on a terminal
AnyTensor = TypeVar("AnyTensor", bound=torch.Tensor)


class Progress:
    """Counts bytes; says so on stderr, at most once a second, and once when all is done.

    Args:
        description: what is done, as the line begins.
        total: bytes there are; without it the line has no share.
    """

    def __init__(self, description: str, total: int = 0) -> None:
        self._description, self._total, self._done = description, total, 0
        self._begin = self._said = time.monotonic()

    def add(self, nbytes: int) -> None:
        """So many bytes more are done."""
        self._done += nbytes
        if time.monotonic() - self._said >= _INTERVAL:
            self._said = time.monotonic()
            self._say("\r" if sys.stderr.isatty() else "\n")

    def over(self, tensors: Iterable[tuple[str, AnyTensor]]) -> Iterator[tuple[str, AnyTensor]]:
        """The same named tensors; each is done when the next one is asked for."""
        for name, tensor in tensors:
            yield name, tensor
            self.add(tensor.numel() * tensor.element_size())
        self.close()

    def close(self) -> None:
        """All is done."""
        self._say("\n")

    def _say(self, end: str) -> None:
        rate = self._done / max(time.monotonic() - self._begin, 1e-9)
        done = _size(self._done)
        if self._total:
            done += f" of {_size(self._total)} ({self._done / self._total:.0%})"
        print(f"{self._description}: {done}, {_size(rate)}/s", end=end, file=sys.stderr, flush=True)


def _size(nbytes: float) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.1f} MB"
