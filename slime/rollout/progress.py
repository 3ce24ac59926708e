"""What the generation of a run is waiting for: to end a run that hangs, and to see idle engines."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from slime.rollout.errors import RolloutError


class Progress:
    """The waits of a run that are going on now. Written on the event loop, read by any thread."""

    def __init__(self) -> None:
        self._waits: dict[int, tuple[float, str]] = {}
        self._numbers = itertools.count()
        self._moved = time.monotonic()

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Inside the context the run waits for `what` (words for a message)."""
        number = next(self._numbers)
        if not self._waits:
            self._moved = time.monotonic()
        self._waits[number] = (time.monotonic(), what)
        try:
            yield
        finally:
            del self._waits[number]
            self._moved = time.monotonic()

    def check(self, timeout: float) -> None:
        """Say that the run hangs.

        Raises:
            RolloutError: something is being waited for, and no wait has ended for `timeout`
                seconds.
        """
        waits = sorted(self._waits.values())
        if not waits or time.monotonic() - self._moved <= timeout:
            return
        since, what = waits[0]
        raise RolloutError(
            f"nothing was finished for {timeout:.0f} s (--rollout-stall-timeout): {len(waits)} "
            f"wait, longest ({time.monotonic() - since:.0f} s) for {what}"
        )


class BusyClock:
    """Counts the seconds in which at least one `with` block of it is open."""

    def __init__(self) -> None:
        self._open = 0
        self._since = 0.0
        self._seconds = 0.0

    def __enter__(self) -> None:
        if not self._open:
            self._since = time.monotonic()
        self._open += 1

    def __exit__(self, *_: object) -> None:
        self._open -= 1
        if not self._open:
            self._seconds += time.monotonic() - self._since

    @property
    def seconds(self) -> float:
        """Busy seconds so far."""
        return self._seconds + (time.monotonic() - self._since if self._open else 0.0)
