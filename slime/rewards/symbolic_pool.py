"""A pool of processes that compare answers by computer algebra, each answer within hard limits.

Workers start when first needed. The clock of an answer is the processor time of its worker and
starts when the worker starts on it, so neither a long queue nor a busy machine turns a right answer
into a wrong one. A worker that exceeds a limit is ended by the kernel and replaced.
"""

import atexit
import json
import logging
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache, lru_cache

logger = logging.getLogger(__name__)

_LONGEST = 600  # characters; longer answers that are not equal exactly are taken as different
_START_SECONDS = 120.0
_REMEMBERED = 8192


@dataclass(frozen=True)
class Limits:
    """Of one answer; seconds, seconds, bytes. The wall clock only backs up the processor's."""

    cpu_seconds: float = 1.5
    wall_seconds: float = 30.0
    memory_bytes: int = 1 << 30


@lru_cache(maxsize=_REMEMBERED)
def is_equal(given: str, truth: str) -> bool:
    """Whether two answers are equal by computer algebra; False when a limit is reached.

    Blocks its thread, so call it from a thread that may wait; never raises.
    """
    if not (_may_be_mathematics(given) and _may_be_mathematics(truth)):
        return False
    return shared_pool().is_equal(given, truth)


class SymbolicPool:
    """At most `num_workers` processes; any thread may ask.

    Attributes:
        num_asked: Pairs answered, `num_ended` of them by a limit.
    """

    def __init__(self, num_workers: int, limits: Limits = Limits()) -> None:
        self._limits = limits
        # Last in, first out: a running worker is taken before a place without one.
        self._places: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(num_workers):
            self._places.put(None)
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()
        self._is_closed = False
        self.num_asked = 0
        self.num_ended = 0

    def is_equal(self, given: str, truth: str) -> bool:
        """The verdict; False when a limit is reached or there is no math-verify."""
        worker = self._places.get()
        verdict = None
        try:
            for _ in range(2):
                if worker is None or not worker.is_alive():
                    worker = self._start()
                if worker is None:
                    return False
                was_fresh = worker.num_answers == 0
                verdict = worker.ask(given, truth)
                # A worker may end because of what it did before; then a fresh one tries again.
                if verdict is not None or was_fresh or worker.was_timed_out:
                    break
        finally:
            with self._lock:
                self.num_asked += 1
                self.num_ended += verdict is None
            self._places.put(worker)
        return bool(verdict)

    def close(self) -> None:
        """End the workers; later questions are answered with False."""
        with self._lock:
            self._is_closed = True
            workers = list(self._workers)
        for worker in workers:
            worker.end()

    def _start(self) -> "_Worker | None":
        with self._lock:
            if self._is_closed:
                return None
            self._workers = {worker for worker in self._workers if worker.is_alive()}
            worker = _Worker(self._limits)
            self._workers.add(worker)
        if worker.wait_until_ready():
            return worker
        worker.end()
        _warn_once()
        return None


class _Worker:
    """One process, used by one thread at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        paths = [os.path.abspath(path) for path in sys.path]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "slime.rewards.symbolic_worker",
                str(limits.cpu_seconds),
                str(limits.memory_bytes),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        self.num_answers = 0
        self.was_timed_out = False

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def wait_until_ready(self) -> bool:
        """Whether the process came up."""
        return self._read_line(_START_SECONDS) == b"true"

    def ask(self, given: str, truth: str) -> bool | None:
        """The verdict; None when the process ended instead."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([given, truth]).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.end()
            return None
        line = self._read_line(self._limits.wall_seconds)
        if line not in (b"true", b"false"):
            self.end()
            return None
        self.num_answers += 1
        return line == b"true"

    def end(self) -> None:
        """Stop the process and wait for it."""
        self.was_timed_out |= self._process.poll() == -signal.SIGPROF
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:  # what could not be written is lost with the process
                pass
        self._process.kill()
        self._process.wait()

    def _read_line(self, seconds: float) -> bytes | None:
        """A line without its end; None when the process ends or the time is over."""
        assert self._process.stdout is not None
        deadline, line = time.monotonic() + seconds, b""
        descriptor = self._process.stdout.fileno()
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                self.was_timed_out = True
                return None
            read = os.read(descriptor, 4096)
            if not read:
                self._process.wait()
                return None
            line += read
        return line.strip()


def _may_be_mathematics(text: str) -> bool:
    """Short, with balanced braces, and more than signs: else there is nothing to compute."""
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0 and len(text) <= _LONGEST and any(c.isalnum() for c in text)


@cache
def _warn_once() -> None:
    logger.warning(
        "no process for symbolic answers came up: answers that need computer algebra count as "
        "wrong; install math-verify and latex2sympy2-extended"
    )


@cache
def shared_pool() -> SymbolicPool:
    """The pool of this process: half as many workers as processors, at most 8."""
    pool = SymbolicPool(max(1, min(8, (os.cpu_count() or 1) // 2)))
    atexit.register(pool.close)
    return pool
