"""Unpack wheels into one folder: `site.py OUT WHEEL...`, run by the derivation nix/site.nix."""

import sys
import zipfile
from pathlib import Path

from third_party.pypi.store import member_path, unpack


def main(out: Path, wheels: list[Path]) -> None:
    """Lay the wheels' files out below `out`.

    Raises:
        SystemExit: two wheels hold different files of one name.
    """
    owner: dict[str, tuple[int, Path]] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                path = member_path(member.filename)
                crc, other = owner.setdefault(path, (member.CRC, wheel))
                if crc != member.CRC:
                    sys.exit(f"{path} differs between {other.name} and {wheel.name}")
        unpack(wheel, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
