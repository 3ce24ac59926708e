"""Peak memory of a program and everything it started, measured from outside."""

import contextlib
import threading
from pathlib import Path
from typing import Self

INTERVAL_SECONDS = 1.0


class RunMemory:
    """Samples, while in use as a context manager, the sum of the processes' proportional set sizes.

    A process counts if its environment holds `marker`: set it for the program, children inherit it.
    PSS divides shared pages among the processes that share them, so the sum counts every page once.
    """

    def __init__(self, marker: str, interval: float = INTERVAL_SECONDS) -> None:
        self.marker = marker.encode()
        self.interval = interval
        self.peak_bytes = 0
        self.peak_processes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(self.interval):
            sizes = [pss_bytes(process) for process in self._processes()]
            if sum(sizes) > self.peak_bytes:
                self.peak_bytes, self.peak_processes = sum(sizes), len(sizes)

    def _processes(self) -> list[Path]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended, or belongs to somebody else
                if self.marker in (process / "environ").read_bytes():
                    found.append(process)
        return found


def pss_bytes(process: Path) -> int:
    """Proportional set size of `/proc/PID`; 0 once the process has ended."""
    with contextlib.suppress(OSError):
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
