"""One server process: started with its output in a log file, watched, and ended by pid."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor
from pathlib import Path

import psutil

from slime.engines import shared_memory
from slime.engines.errors import EngineDied
from slime.engines.log_tail import log_tail

_ORPHAN_SECONDS = 2.0
_LOOKS = 3  # for frozen processes, within the time that one may be frozen


class ServerProcess:
    """A child in a process group of its own, which holds all that it spawns.

    A terminal's Ctrl-C therefore does not reach it: the run ends its servers in its own order.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: dict[str, str],
        log: Path,
        spawner: Executor,
        may_freeze: float = 30.0,
    ) -> None:
        """Start it. `spawner` is one long-lived thread: the child is killed when the thread that
        started it ends. `may_freeze`: seconds after which a frozen one counts as dead."""
        self.name = name
        self.log = log
        self._may_freeze = may_freeze
        self._looked = float("-inf")
        self._stopped_since = float("inf")
        self._shared_memory: set[int] = set()
        log.parent.mkdir(parents=True, exist_ok=True)
        child = [sys.executable, "-m", "slime.engines.child", str(os.getpid()), *command]
        with log.open("ab") as output:
            self._process = spawner.submit(
                subprocess.Popen,
                child,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            ).result()
        self.pid: int = self._process.pid

    def is_alive(self) -> bool:
        """Whether the server itself still runs."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raise `EngineDied` with how it ended and the end of its log, if it ended or is frozen.

        Frozen: it, or a process that it spawned, has been stopped (SIGSTOP) for long. That is seen
        where no answer can be expected in a short time, and a slow one is not frozen.
        """
        code = self._process.poll()
        if code is None:
            self._check_frozen()
            return
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        raise EngineDied(f"{self.name} (pid {self.pid}) {how}\n{self.log_tail()}")

    def _check_frozen(self) -> None:
        now = time.monotonic()
        if now >= self._looked + self._may_freeze / _LOOKS:
            self._looked = now
            stopped = any(_is_stopped(process) for process in self._members())
            self._stopped_since = min(self._stopped_since, now) if stopped else float("inf")
        if now >= self._stopped_since + self._may_freeze:
            raise EngineDied(
                f"{self.name} (pid {self.pid}) is frozen: one of its processes has been stopped "
                f"for {now - self._stopped_since:.0f} s\n{self.log_tail()}"
            )

    def _members(self) -> list[psutil.Process]:
        """Itself and all that it spawned; none if it is ending."""
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.pid)
            return [leader, *leader.children(recursive=True)]
        return []

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of the log, headed by its path."""
        return log_tail(self.log, lines)

    def note_shared_memory(self) -> None:
        """Remember the shared memory of the server and its children, to remove it in the end.

        SGLang leaves some behind when it is killed, and then it is too late to ask.
        """
        pids = [process.pid for process in self._members()]
        self._shared_memory |= shared_memory.mapped_inodes(pids)

    def terminate(self) -> None:
        """Ask it to end."""
        self.note_shared_memory()
        if self.is_alive():
            os.kill(self.pid, signal.SIGTERM)

    def set_log_aside(self, suffix: str) -> None:
        """Give the log another ending; the next process writes to a new one."""
        self.log.rename(self.log.with_suffix(suffix))

    def kill(self, patience: float) -> None:
        """Wait `patience` seconds, then end it and its group by force.

        The leader goes first: what it spawned ends with it, and Python's resource tracker, which
        only then gets to work, removes the semaphores of all of them.
        """
        self.note_shared_memory()
        try:
            self._process.wait(max(0.0, patience))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while self._group_lives() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._group_lives():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        shared_memory.unlink(self._shared_memory)

    def _group_lives(self) -> bool:
        """Whether a process of the group is left that is no zombie: nobody may reap orphans."""
        for process in psutil.process_iter(["status"]):
            with contextlib.suppress(ProcessLookupError):
                is_member = os.getpgid(process.pid) == self.pid
                if is_member and process.info["status"] != psutil.STATUS_ZOMBIE:
                    return True
        return False


def _is_stopped(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() == psutil.STATUS_STOPPED
    return False
