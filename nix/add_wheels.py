"""Bring the CPU lock's wheels into the Nix store: `python3 nix/add_wheels.py [PACKAGE ...]`.

The files come from the store of wheels that Bazel uses too, and from pip where it lacks them
(third_party/pypi/store.py), so pip's own configuration decides where from. Each is compared with
its locked sha256 and added under the name that nix/site.nix asks for.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from third_party.pypi.store import Requirement, StoreError, fetch, store_root, wheel_of  # noqa: E402


def locked(lock: Path) -> list[Requirement]:
    """The lock's lines, continuation lines joined."""
    text = lock.read_text().replace("\\\n", " ")
    return [
        Requirement(re.sub(" +", " ", line))
        for line in text.splitlines()
        if line and not line.startswith("#")
    ]


def main(names: list[str]) -> int:
    """Add all of the lock's wheels, or those of the packages named."""
    wanted = locked(ROOT / "requirements.lock.txt")
    if names:
        wanted = [one for one in wanted if one.pin.partition("==")[0] in names]
    store = store_root()
    store.mkdir(parents=True, exist_ok=True)
    try:
        fetch(store, wanted)
    except StoreError as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        for one in wanted:
            named = Path(folder, one.pin.replace("==", "-") + ".whl")
            shutil.copyfile(wheel_of(store, one), named)
            command = ["nix-store", "--add-fixed", "sha256", str(named)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            named.unlink()
    print(f"added {len(wanted)} wheels to the Nix store")
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
