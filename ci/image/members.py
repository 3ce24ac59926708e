"""Members of an image layer, from a .deb, a wheel or source files, without unpacking to disk.

Whatever differs from machine to machine is set here: owner, time, and the modes of files that come
from a checkout. Modes of Debian's files are Debian's.
"""

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import IO

from ci.image.locked import ImageError
from third_party.pypi.store import member_path

EPOCH = 315532800
"""Modification time of everything, 1980-01-01: the earliest that a zip file can hold."""

Open = Callable[[], IO[bytes]]
Members = dict[str, tuple[tarfile.TarInfo, Open | None]]
"""By path, without a leading slash. What has no content has nothing to open."""


def add(
    members: Members,
    path: str,
    mode: int,
    content: bytes | Open | None = None,
    size: int = 0,
    link: str = "",
) -> None:
    """Put a file (with `content`), a symbolic link (`link`) or else a folder to the members.

    Raises:
        ImageError: The path leads out of the image.
    """
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or path.startswith("/"):
        raise ImageError(f"a member's path leads out of the image: {path}")
    info = tarfile.TarInfo("/".join(parts))
    info.mtime, info.mode = EPOCH, mode
    opener: Open | None = None
    if link:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, link, 0o777
    elif content is None:
        info.type = tarfile.DIRTYPE
    elif isinstance(content, bytes):
        info.size, opener = len(content), lambda: io.BytesIO(content)
    else:
        info.size, opener = size, content
    members[info.name] = (info, opener)


def content_of(members: Members, path: str) -> bytes:
    """What a member holds; nothing if it is no file."""
    opener = members[path][1]
    if opener is None:
        return b""
    with opener() as file:
        return file.read()


def with_folders(members: Members) -> Members:
    """The members sorted, after every folder that they lie in."""
    complete = dict(members)
    for path in members:
        for folder in map(str, PurePosixPath(path).parents[:-1]):
            if folder not in complete:
                add(complete, folder, 0o755)
    return dict(sorted(complete.items(), key=lambda item: item[0].split("/")))


def add_wheel(members: Members, wheel: Path, site: str) -> None:
    """A wheel's files below the folder `site`, as an installer lays them out.

    pip's own records (INSTALLER, REQUESTED, direct_url.json) are left out: they depend on how and
    by what it was installed. So are scripts, which name an interpreter.
    """
    archive = zipfile.ZipFile(wheel)
    for info in archive.infolist():
        place = member_path(info.filename)
        if info.is_dir() or place.startswith("bin/"):
            continue
        mode = 0o755 if info.external_attr >> 16 & 0o111 else 0o644

        def opener(info: zipfile.ZipInfo = info) -> IO[bytes]:
            return archive.open(info)

        add(members, f"{site}/{place}", mode, opener, size=info.file_size)


def add_sources(members: Members, root: Path, paths: Iterable[str], target: str) -> None:
    """Files of a checkout, at their path below the folder `target`."""
    for path in sorted(paths):
        add(members, f"{target}/{path}", 0o644, (root / path).read_bytes())
