"""The router starts without what it does not use."""

import subprocess
import sys

PROGRAM = """
import sys
from sglang_router import router
from slime.engines import router_launch
router.Router.start = lambda self: print("large" if "torch" in sys.modules else "small")
router_launch.main(sys.argv[1:])
"""


def run(*flags: str) -> str:
    command = [sys.executable, "-c", PROGRAM, "--port=1", "--log-level=error", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_router_needs_no_pytorch() -> None:
    assert run() == "small"
