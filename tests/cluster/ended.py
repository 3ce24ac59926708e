"""Waits for a process that is no child of this one."""

import time
from pathlib import Path


def ended(pid: int, seconds: float = 5.0) -> bool:
    """Gone, or a zombie that only waits for init."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        if stat[stat.rindex(")") + 2] == "Z":
            return True
        time.sleep(0.05)
    return False
