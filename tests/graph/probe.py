"""Report what a program started by Bazel sees: `probe.py INPUT OUTPUT.json`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy


def report(source: Path) -> dict[str, object]:
    """Facts about this process and a child that imports the same packages."""
    child = "import numpy, tests.graph.probe; print(numpy.__version__)"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
    return {
        "numpy": numpy.__version__,
        "child": (done.stdout + done.stderr).strip(),
        "input": source.read_text().splitlines()[0],
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "folder": str(Path.cwd()),
        "runfiles": os.environ["SLIME_RUNFILES"],
        "torch": _importable("torch"),
    }


def _importable(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(report(Path(sys.argv[1])), indent=1))
