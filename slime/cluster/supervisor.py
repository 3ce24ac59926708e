"""Keeps the promise to leave nothing behind: no process, no shared memory, no scratch folder."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable
from types import FrameType
from typing import Self

from slime.cluster.processes import RUN_ID_VARIABLE, RunProcesses

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAMPLE_SECONDS = 2.0
# Without this, setproctitle writes the titles of Ray's and SGLang's processes over their
# environment, and with it over the run id.
_KEEP_ENVIRON = {"SPT_NOENV": "1"}


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
        self._stop_sampling = threading.Event()
        self._before_end: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
        self.take_signals()
        self._environ = os.environ.copy()
        os.environ.update({RUN_ID_VARIABLE: self.run_id, **_KEEP_ENVIRON})
        self.scratch = tempfile.mkdtemp(prefix="slime-", dir="/tmp")
        self._watchdog = subprocess.Popen(
            [sys.executable, "-m", "slime.cluster.watchdog", self.run_id, self.scratch],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._processes = RunProcesses(
            self.run_id, spare=frozenset({os.getpid(), self._watchdog.pid})
        )
        self._sampler = threading.Thread(target=self._sample, daemon=True, name="memory-sampler")
        self._sampler.start()
        return self

    def take_signals(self) -> None:
        """Turn signals into `Interrupted`; again after something replaced the handlers (Ray does)."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def before_end(self, action: Callable[[], None]) -> None:
        """Register a polite stop, run first when the run ends well; skipped when it fails."""
        self._before_end.append(action)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number in self._previous:  # a second Ctrl-C must not interrupt the cleaning up
            signal.signal(number, signal.SIG_IGN)
        self._stop_sampling.set()
        if kind is None:
            for action in reversed(self._before_end):
                action()
        self._sampler.join()
        self._processes.end_all()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self._watchdog.communicate("done")
        os.environ.clear()
        os.environ.update(self._environ)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _sample(self) -> None:
        while not self._stop_sampling.wait(_SAMPLE_SECONDS):
            self.peak_memory_bytes = max(self.peak_memory_bytes, self._processes.memory_bytes())

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        raise Interrupted(number)
