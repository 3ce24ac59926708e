"""Become a server that does not outlive its parent: `python -m slime.engines.child PARENT_PID
COMMAND...`.

The kernel is asked to kill this process when the parent's thread that started it ends; the wish
survives `exec`. Asking here, and not between fork and exec in the parent, is safe in a parent with
many threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Replace this process by the command in `argv[1:]`."""
    parent, command = int(argv[0]), argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the request was in place
        sys.exit("the process that asked for this server is gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
