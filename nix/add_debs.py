"""Bring the CPU image's Debian packages into the Nix store: `python3 nix/add_debs.py`.

apt brings the files (ci/image/base_debs.py), so its own configuration decides where from. Each is
compared with its locked sha256 and added under the name that nix/locked_file.nix asks for.
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

from ci.image import base_debs  # noqa: E402
from slime.doctor.lock_file import LockError  # noqa: E402


def main() -> int:
    """Add all of base.deb.lock."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = base_debs.fetch(base_debs.LOCK)
        except (base_debs.DebError, LockError) as error:
            print(error, file=sys.stderr)
            return 1
        for one, file in files.items():
            named = Path(folder, re.sub("[:~]", "-", f"{one.name}-{one.version}.deb"))
            shutil.copyfile(file, named)
            command = ["nix-store", "--add-fixed", "sha256", str(named)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            named.unlink()
    print(f"added {len(files)} Debian packages to the Nix store")
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
