"""Keeps the promise to leave nothing behind: no process, no shared memory, no scratch folder."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType
from typing import Self

from slime.cluster.processes import RUN_ID_VARIABLE, RunProcesses

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WATCH_SECONDS = 2.0
_POLITE_SECONDS = 5.0
# Without this, setproctitle writes the titles of Ray's and SGLang's processes over their
# environment, and with it over the run id.
_KEEP_ENVIRON = {"SPT_NOENV": "1"}
# Whatever the locale, text files are UTF-8: torch cannot be imported otherwise.
_UTF8 = {"PYTHONUTF8": "1"}


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP reached the driver. ``number`` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Supervisor:
    """One per run, in the driver. Use as a context manager around everything the run starts.

    ``scratch`` is the run's own temporary folder (short, because Ray puts sockets into it);
    ``peak_memory_bytes`` the largest sum of the processes' proportional set sizes seen so far.
    """

    def __init__(self) -> None:
        self.run_id = uuid.uuid4().hex
        self.scratch = ""
        self.peak_memory_bytes = 0
        self._received: int | None = None
        self._heard = 0.0
        self._ends = threading.Event()
        self._before_end: list[tuple[Callable[[], None], bool]] = []

    def __enter__(self) -> Self:
        self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
        self.take_signals()
        self._environ = os.environ.copy()
        self.scratch = tempfile.mkdtemp(prefix="slime-", dir="/tmp")
        os.environ.update(
            {RUN_ID_VARIABLE: self.run_id, "TMPDIR": self.scratch, **_KEEP_ENVIRON, **_UTF8}
        )
        self._watchdog = subprocess.Popen(
            [sys.executable, "-m", "slime.cluster.watchdog", self.run_id, self.scratch],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._processes = RunProcesses(
            self.run_id, spare=frozenset({os.getpid(), self._watchdog.pid})
        )
        self._monitor = threading.Thread(target=self._watch, daemon=True, name="supervisor")
        self._monitor.start()
        return self

    def take_signals(self) -> None:
        """Turn signals into `Interrupted`; to be called again after Ray replaced the handlers."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def before_end(self, action: Callable[[], None], *, even_if_failed: bool = False) -> None:
        """Register a polite stop, run before the rest is ended; the last registered runs first.

        Each has a few seconds. When the run failed only those ``even_if_failed`` are run.
        """
        self._before_end.append((action, even_if_failed))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number in self._previous:  # a second Ctrl-C must not interrupt the cleaning up
            signal.signal(number, signal.SIG_IGN)
        self._ends.set()
        for action, even_if_failed in reversed(self._before_end):
            if kind is None or even_if_failed:
                thread = threading.Thread(target=action, daemon=True)
                thread.start()
                thread.join(_POLITE_SECONDS)
        self._monitor.join()
        self._processes.end_all()
        _remove(self.scratch)
        self._watchdog.communicate("done")
        os.environ.clear()
        os.environ.update(self._environ)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._received is not None and kind not in (None, Interrupted):
            # Raised inside Ray's compiled code, an exception of a signal comes out as another.
            raise Interrupted(self._received)

    def _watch(self) -> None:
        while not self._ends.wait(_WATCH_SECONDS):
            self._repeat_lost_signal()
            self.peak_memory_bytes = max(self.peak_memory_bytes, self._processes.memory_bytes())

    def _repeat_lost_signal(self) -> None:
        """Send a signal again that did not end the run: an exception that meets a finalizer is
        ignored.
        """
        if self._received is not None and time.monotonic() > self._heard + _WATCH_SECONDS:
            os.kill(os.getpid(), self._received)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._received, self._heard = number, time.monotonic()
        raise Interrupted(number)


def _remove(folder: str) -> None:
    """Remove ``folder``; a thread of this process (Ray's) may still be writing into it."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)
