"""Run a target's test files on GPUs that nothing else has: `--gpus=N [--twin] FILES AND OPTIONS`.

The main program of tests tagged `gpu:N`. It takes the locks of ci/gpu_lock_exec.py and then starts
pytest_main.py with the machine's own Python (`$SLIME_CUDA_PYTHON`, else python3) and its packages:
CUDA's wheels belong to the machine, those locked are for CPUs. With too few GPUs it fails at once.
`--twin` says that the test has a twin for CPUs, which SLIME_CPU_TWIN=1 (--config=cpu-twin) runs.
"""

import os
import sys
from pathlib import Path

from tools.bazel.bootstrap import activate


def too_few(needed: int, present: int, has_twin: bool) -> str:
    """The sentence to fail with."""
    text = f"This test needs {needed} GPU{'s' * (needed > 1)} and this machine has {present}"
    return f"{text}; --config=cpu-twin runs its CPU twin." if has_twin else f"{text}."


def main() -> int:
    """Exit as the test does, or with 1 if it cannot run here."""
    from ci.gpu_lock_exec import installed_gpus
    from ci.gpu_lock_exec import main as lock_and_run

    needed = next(int(a.removeprefix("--gpus=")) for a in sys.argv if a.startswith("--gpus="))
    rest = [a for a in sys.argv[1:] if not a.startswith("--gpus=") and a != "--twin"]
    test = [str(Path(__file__).absolute().with_name("pytest_main.py")), *rest]
    has_twin = "--twin" in sys.argv
    if has_twin and os.environ.get("SLIME_CPU_TWIN") == "1":
        os.execv(sys.executable, [sys.executable, *test])
    present = installed_gpus()
    if present < needed:
        print(too_few(needed, present, has_twin), file=sys.stderr)
        return 1
    os.environ["SLIME_HOST_PACKAGES"] = "1"
    python = os.environ.get("SLIME_CUDA_PYTHON") or "python3"
    return lock_and_run([f"--count={needed}", "--", python, *test])


if __name__ == "__main__":
    activate(os.environ["TEST_WORKSPACE"])
    sys.exit(main())
