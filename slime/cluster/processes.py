"""The processes of one run, found in /proc by the run id they inherited.

Every process of a run carries ``SLIME_RUN_ID`` in its environment, so what is left of a run is
found without guessing by name. One that cleared its environment is found through its parent.
"""

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from slime.engines import shared_memory

RUN_ID_VARIABLE = "SLIME_RUN_ID"
_PROC = Path("/proc")
_EXEC_SECONDS = 0.3


@dataclass(frozen=True)
class ProcessId:
    """A pid together with its start time, so that a reused pid is never mistaken for ours."""

    pid: int
    start_ticks: int


@dataclass
class RunProcesses:
    """What has been seen of a run: its processes and the inodes of shared memory they mapped."""

    run_id: str
    spare: frozenset[int] = frozenset()
    seen: set[ProcessId] = field(default_factory=set)
    shared_memory: set[int] = field(default_factory=set)

    def refresh(self) -> list[ProcessId]:
        """Look at /proc again; returns the living processes of the run, without the spared pids."""
        marker = f"{RUN_ID_VARIABLE}={self.run_id}".encode()
        parents: dict[int, tuple[int, ProcessId]] = {}
        ours: set[int] = {process.pid for process in self.seen if is_alive(process)}
        for pid in _all_pids():
            stat = _stat(pid)
            if stat is None:
                continue
            parents[pid] = (stat[0], ProcessId(pid, stat[1]))
            environ = _read(pid, "environ")
            if not environ and stat[0] in self.spare:
                environ = _environ_after_exec(pid)
            if marker in environ.split(b"\0"):
                ours.add(pid)
        ours |= _descendants(ours - self.spare, parents)
        living = [parents[pid][1] for pid in ours - self.spare if pid in parents]
        self.seen.update(living)
        self.shared_memory |= shared_memory.mapped_inodes(process.pid for process in living)
        return living

    def memory_bytes(self) -> int:
        """Sum of the proportional set sizes (PSS) of the run's processes, spared ones included."""
        pids = {process.pid for process in self.refresh()} | self.spare
        return sum(_pss_bytes(pid) for pid in pids)

    def end_all(self, grace: float = 2.0) -> int:
        """SIGTERM, after ``grace`` seconds SIGKILL, to all of them; returns how many there were."""
        first = self.refresh()
        ended = {process.pid for process in first}
        _signal(first, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and self.refresh():
            time.sleep(0.05)
        for _ in range(100):  # a process may still fork while its parent is being killed
            living = self.refresh()
            if not living:
                break
            ended |= {process.pid for process in living}
            _signal(living, signal.SIGKILL)
            time.sleep(0.05)
        shared_memory.unlink(self.shared_memory)
        return len(ended)


def is_alive(process: ProcessId) -> bool:
    """Whether this very process (not another under its pid) lives and is no zombie."""
    stat = _stat(process.pid)
    return stat is not None and stat[1] == process.start_ticks


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def _environ_after_exec(pid: int) -> bytes:
    """The environment of a process just started: while it is inside `exec`, there is none to see,
    though its parent already goes on."""
    deadline = time.monotonic() + _EXEC_SECONDS
    environ = b""
    while not environ and time.monotonic() < deadline:
        time.sleep(0.01)
        environ = _read(pid, "environ")
    return environ


def _stat(pid: int) -> tuple[int, int] | None:
    """(parent pid, start time in ticks) of a process, None for one that is gone or a zombie."""
    text = _read(pid, "stat").decode(errors="replace")
    if not text:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else (int(fields[1]), int(fields[19]))


def _descendants(roots: set[int], parents: dict[int, tuple[int, ProcessId]]) -> set[int]:
    found = set(roots)
    grew = True
    while grew:
        more = {pid for pid, (parent, _) in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return found


def _pss_bytes(pid: int) -> int:
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _signal(processes: list[ProcessId], number: int) -> None:
    for process in processes:
        if is_alive(process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
