"""The base layer: Debian packages unpacked over each other, without dpkg and without their scripts.

What scripts would have done and a Python program needs is done here: the merged /usr (Debian's
packages of release 12 still name /bin and /lib), the accounts, and the list of what is installed,
in the folder where scanners of images look for it.
"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

from ci.image.locked import ImageError
from ci.image.members import Members, add

_MERGED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_HOSTS = b"127.0.0.1 localhost\n::1 localhost\n"


def ar_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of the files of an ar archive, which a .deb is (see ar(5), deb(5)).

    Raises:
        ImageError: It is none.
    """
    with path.open("rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise ImageError(f"{path.name}: expected a Debian package, found something else")
        while header := file.read(60):
            name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
            yield name, file.read(size)
            file.read(size % 2)


def control(path: Path) -> str:
    """The package's own description."""
    content = next(data for name, data in ar_members(path) if name.startswith("control.tar"))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        entry = next(one for one in archive if one.name.lstrip("./") == "control")
        file = archive.extractfile(entry)
        assert file is not None
        return file.read().decode()


def merged(path: str) -> str:
    """A path of a package in the merged /usr: `./bin/sh` -> `usr/bin/sh`."""
    path = path.removeprefix("./").strip("/")
    return f"usr/{path}" if path.split("/")[0] in _MERGED else path


def add_package(members: Members, path: Path) -> None:
    """The files of one .deb."""
    content = next(data for name, data in ar_members(path) if name.startswith("data.tar"))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for entry in archive:
            place = merged(entry.name)
            if place in ("", "."):
                continue
            if entry.isdir():
                add(members, place, entry.mode)
            elif entry.issym():
                add(members, place, 0o777, link=entry.linkname)
            elif entry.isreg() or entry.islnk():  # a hard link becomes a copy
                file = archive.extractfile(entry)
                assert file is not None
                add(members, place, entry.mode, file.read())
            else:
                raise ImageError(f"{path.name}: {entry.name} is no file, folder or link")


def base_layer(packages: dict[str, Path]) -> Members:
    """All members of the base layer, of packages by name; none without packages."""
    members: Members = {}
    for name, path in packages.items():
        add_package(members, path)
        add(members, f"var/lib/dpkg/status.d/{name}", 0o644, control(path).encode())
    if not packages:
        return members
    for folder in _MERGED:
        if any(place.startswith(f"usr/{folder}/") for place in members):
            add(members, folder, 0o777, link=f"usr/{folder}")
    for file in ("passwd", "group"):
        master = members.get(f"usr/share/base-passwd/{file}.master")
        if master and master[1]:
            add(members, f"etc/{file}", 0o644, master[1]().read())
    add(members, "etc/hosts", 0o644, _HOSTS)
    return members
