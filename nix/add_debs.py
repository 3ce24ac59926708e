"""Bring the CPU image's Debian packages into the Nix store: `python3 nix/add_debs.py`.

apt brings the files (ci/image/base_debs.py), so its own configuration decides where from. Each is
compared with its locked sha256 and added under the name that nix/locked_file.nix asks for.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ci.image import base_debs
from nix.add_wheels import add_fixed
from slime.doctor.lock_file import LockError


def main() -> int:
    """Add all of base.deb.lock."""
    try:
        files = base_debs.fetch(base_debs.LOCK)
        with tempfile.TemporaryDirectory() as folder:
            for one, file in files.items():
                name = re.sub("[:~]", "-", f"{one.name}-{one.version}.deb")
                add_fixed(file, name, Path(folder))
    except (base_debs.DebError, LockError) as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"cannot add packages to the Nix store: {error}", file=sys.stderr)
        return 1
    print(f"added {len(files)} Debian packages to the Nix store")
    return 0


if __name__ == "__main__":
    sys.exit(main())
