"""Bring the CPU image's Debian packages into the Nix store: `python3 nix/add_debs.py`.

apt brings the files (ci/image/base_debs.py), so its own configuration decides where from. Each is
compared with its locked sha256 and added to the Nix store (nix/add_files.py).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ci.image import base_debs
from nix.add_files import add_files
from slime.doctor.lock_file import LockError


def main() -> int:
    """Add all of base.deb.lock."""
    try:
        files = base_debs.fetch(base_debs.LOCK)
    except (base_debs.DebError, LockError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return add_files("Debian packages", files)


if __name__ == "__main__":
    sys.exit(main())
