"""Adds files of a lock to the Nix store: what add_wheels.py and add_debs.py have in common."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from slime.doctor.lock_file import Locked


def add_files(kind: str, files: Mapping[Locked, Path]) -> int:
    """Add each under the name that nix/locked_file.nix asks for; returns the exit code."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            for package, file in files.items():
                name = re.sub("[:~]", "-", f"{package.name}-{package.version}{file.suffix}")
                named = shutil.copyfile(file, Path(folder, name))
                command = ["nix-store", "--add-fixed", "sha256", str(named)]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                named.unlink()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"cannot add {kind} to the Nix store: {error}", file=sys.stderr)
        return 1
    print(f"added {len(files)} {kind} to the Nix store")
    return 0
