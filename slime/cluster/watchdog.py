"""Ends what a run left behind when its driver died without cleaning up (``kill -9``).

    python -m slime.cluster.watchdog RUN_ID SCRATCH_DIR < pipe held open by the driver

The end of the pipe means the driver is gone. If it said ``done`` first, there is nothing to do.
"""

import os
import shutil
import signal
import sys

from slime.cluster.processes import RunProcesses


def main(run_id: str, scratch: str) -> None:
    """Wait for the driver's end, then clean up after it unless it said ``done``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.read().strip() == "done":
        return
    RunProcesses(run_id, spare=frozenset({os.getpid()})).end_all()
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
