"""Start a first-party program with the packages its target declares, and no others.

Bazel lays a target's files out below `<program>.runfiles`: first-party code in the workspace's
folder, and for each locked wheel a folder with a stamp, beside which (after links) lie its
site-packages.
"""

import os
import runpy
import sys
import sysconfig
from pathlib import Path


def runfiles_root() -> Path:
    """The folder that holds the workspace and the wheels of the running target."""
    head, mark, _ = os.path.abspath(sys.argv[0]).rpartition(".runfiles" + os.sep)
    if mark:
        return Path(head + ".runfiles")
    return Path(os.environ.get("RUNFILES_DIR") or os.environ["TEST_SRCDIR"])


def declared_packages(root: Path) -> list[str]:
    """The site-packages folders of the wheels among the runfiles, in a fixed order."""
    stamps = (Path(root, name, "stamp") for name in sorted(os.listdir(root)) if "pypi_" in name)
    return [
        str((stamp.resolve().parent / "site-packages").resolve())
        for stamp in stamps
        if stamp.exists()
    ]


def activate(workspace: str) -> Path:
    """Set the import path of this process and, by PYTHONPATH, of its children.

    Returns the folder of the workspace's runfiles, which SLIME_RUNFILES names too.
    With SLIME_HOST_PACKAGES (gpu_main.py) the packages are those of the running Python.
    """
    root = runfiles_root()
    if os.environ.get("SLIME_HOST_PACKAGES"):
        packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    else:
        packages = declared_packages(root)
    # All else goes: the script's own folder (Python follows its link into the source tree) and what
    # Bazel adds.
    standard = sysconfig.get_path("stdlib")
    kept = [path for path in sys.path if path == standard or path.endswith((".zip", "lib-dynload"))]
    sys.path[:] = [str(root / workspace), *kept, *packages]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root / workspace), *packages])
    os.environ["SLIME_RUNFILES"] = str(root / workspace)
    return root / workspace


def run(workspace: str, module: str) -> None:
    """Run a module as the main program, in the folder where the user typed the command."""
    activate(workspace)
    if "BUILD_WORKING_DIRECTORY" in os.environ:
        os.chdir(os.environ["BUILD_WORKING_DIRECTORY"])
    runpy.run_module(module, run_name="__main__", alter_sys=True)
