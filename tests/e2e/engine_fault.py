"""One engine of a run is killed, from within: a function for --rollout-sample-hook-path.

The rollout manager calls it for every sample; engines are its child processes.
"""

from __future__ import annotations

import asyncio
import contextlib
from argparse import Namespace
from pathlib import Path

import psutil

from slime.samples.sample import Sample

LOG = "logs/rollout_manager.log"
VICTIM = "killed_engine"  # holds the process id


async def kill_and_wait(args: Namespace, sample: Sample, rollout_id: int | None = None) -> None:
    """In rollout 1 an engine dies; rollout 2 ends only when another serves in its place."""
    run_dir = Path(args.run_dir)
    if rollout_id == 1:
        with contextlib.suppress(FileExistsError):  # another sample was faster
            _kill(run_dir / VICTIM)
    while rollout_id == 2 and "serves again" not in (run_dir / LOG).read_text():
        await asyncio.sleep(0.2)


def _kill(note: Path) -> None:
    with note.open("x") as file:
        children = psutil.Process().children(recursive=True)
        engines = [child for child in children if "sglang::scheduler" in " ".join(child.cmdline())]
        file.write(str(engines[0].pid))
        engines[0].kill()
