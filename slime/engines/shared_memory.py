"""Shared-memory files and semaphores that killed processes leave in /dev/shm.

A mapping is known by its inode: a semaphore is mapped under a temporary name and renamed later.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_FOLDER = "/dev/shm/"


def mapped_inodes(pids: Iterable[int]) -> set[int]:
    """Inodes of the files of /dev/shm that these processes have mapped; none if they ended."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                if _FOLDER in line:
                    inodes.add(int(line.split()[4]))
    return inodes


def unlink(inodes: set[int]) -> None:
    """Remove the files of /dev/shm that have one of these inodes."""
    with os.scandir(_FOLDER) as entries:
        for entry in entries:
            if entry.inode() in inodes:
                Path(entry.path).unlink(missing_ok=True)
