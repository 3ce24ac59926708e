"""Ends what a run left behind when its driver died without cleaning up (``kill -9``).

    python -m slime.cluster.watchdog RUN_ID SCRATCH_DIR < pipe held open by the driver

The end of the pipe means the driver is gone. If it said ``done`` first, there is nothing to do.
Until then it looks at the run now and again: servers end with what started them, often before the
end of the pipe is read, and then nothing tells any more which shared memory they had mapped.
"""

import os
import select
import shutil
import signal
import sys

from slime.cluster.processes import RunProcesses

LOOK_SECONDS = 1.0


def main(run_id: str, scratch: str) -> None:
    """Wait for the driver's end, then clean up after it unless it said ``done``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    processes = RunProcesses(run_id, spare=frozenset({os.getpid()}))
    while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
        processes.refresh()
    if sys.stdin.read().strip() == "done":
        return
    processes.end_all()
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
