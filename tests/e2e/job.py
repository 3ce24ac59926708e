"""One started run of the entry point, seen from outside."""

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil


@dataclass
class Job:
    """One started run of the entry point."""

    run_dir: Path
    marker: str
    process: subprocess.Popen
    output: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._new: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.output.append(line)
            self._new.put(line)
        self._new.put("")  # the end

    def wait_for_line(self, text: str, seconds: float = 150) -> str:
        """Wait until a line of the output, after those already waited for, has ``text``."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while line := self._new.get(timeout=max(0.0, deadline - time.monotonic())):
                if text in line:
                    return line
        raise AssertionError(f"{text!r} did not appear in:\n{self.text}")

    def forget_lines(self) -> None:
        """Wait only for lines that come from now on."""
        while not self._new.empty():
            self._new.get()

    def wait(self, seconds: float = 200) -> int:
        """The exit code; the job is killed and the test fails if it hangs."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            self._reader.join(max(0.0, deadline - time.monotonic()))
        if self._reader.is_alive():
            self.end()
            raise AssertionError(f"hangs after:\n{self.text}")
        return self.process.returncode

    @property
    def text(self) -> str:
        """All that it printed so far."""
        return "".join(self.output)

    def metrics(self, kind: str) -> list[dict[str, Any]]:
        """Records of metrics.jsonl."""
        lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["kind"] == kind]

    def processes(self) -> dict[int, str]:
        """Living processes that the job started: pid -> command line."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if command and self.marker.encode() in (entry / "environ").read_bytes():
                    found[pid] = command
        return found

    def pid_of(self, text: str) -> int:
        """The one process whose command line has ``text``."""
        matches = [pid for pid, command in self.processes().items() if text in command]
        assert len(matches) == 1, (text, self.processes())
        return matches[0]

    def listening(self) -> dict[str, str]:
        """Addresses on which the job's processes listen -> command line."""
        found = {}
        for pid, command in self.processes().items():
            with contextlib.suppress(psutil.Error):
                for connection in psutil.Process(pid).net_connections(kind="tcp"):
                    if connection.status == psutil.CONN_LISTEN:
                        address = connection.laddr.ip.removeprefix("::ffff:")
                        found[f"{address}:{connection.laddr.port}"] = command
        return found

    def files(self) -> set[Path]:
        """Shared-memory files and scratch folders that the job's processes use now."""
        used: set[Path] = set()
        for pid in self.processes():
            with contextlib.suppress(OSError):
                maps = Path(f"/proc/{pid}/maps").read_text()
                used |= {Path(path) for path in re.findall(r"/dev/shm/\S+$", maps, re.MULTILINE)}
                command = Path(f"/proc/{pid}/cmdline").read_text()
                used |= {Path(path) for path in re.findall(r"/tmp/slime-\w+", command)}
        return {path for path in used if path.exists()}

    def end(self) -> None:
        """Kill whatever is left."""
        self.process.kill()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def assert_nothing_left(job: Job, files: set[Path]) -> None:
    """No process, and none of the files that a job had outside its folder while it ran."""
    assert job.processes() == {}
    assert files  # at least Ray's scratch folder was there
    assert [path for path in files if path.exists()] == []
