"""The files of a folder that fit a lock, found by their content."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from slime.doctor.lock_file import Locked


class ImageError(Exception):
    """An image cannot be made; the message names every wrong input, the expected and the found."""


def chosen(locked: Mapping[str, Locked], names: Sequence[str]) -> list[Locked]:
    """The packages with these names, or all if `names` is empty; sorted by name.

    Raises:
        ImageError: A name is not in the lock.
    """
    missing = sorted(set(names) - locked.keys())
    if missing:
        raise ImageError(f"not in the lock: {', '.join(missing)}")
    return [locked[name] for name in sorted(names or locked)]


def files_of(paths: Iterable[Path], suffix: str) -> list[Path]:
    """Files that end with `suffix`, of files and folders."""
    found = []
    for path in paths:
        found += sorted(path.glob(f"*{suffix}")) if path.is_dir() else [path]
    return found


def match(locked: Iterable[Locked], files: Sequence[Path]) -> dict[Locked, Path]:
    """The file of each package, whatever it is called.

    Raises:
        ImageError: A package without its file, with what lies in its place; all of them at once.
    """
    by_digest = {sha256(file): file for file in files}
    matched, problems = {}, []
    for one in locked:
        if one.sha256 in by_digest:
            matched[one] = by_digest[one.sha256]
            continue
        similar = [
            f"{digest} ({file.name})" for digest, file in by_digest.items() if _is_for(one, file)
        ]
        found = ", ".join(similar) or "no such file"
        problems.append(f"{one.pin}\n  expected: {one.sha256}\n  found:    {found}")
    if problems:
        raise ImageError("\n".join(["files that do not fit the lock:", *problems]))
    return matched


def _is_for(locked: Locked, file: Path) -> bool:
    """Whether a file's name (`name-version-...whl`, `name_version_arch.deb`) says that it is meant
    for a package."""
    if file.suffix == ".deb":
        return file.name.split("_")[0] == locked.name
    return re.sub(r"[-_.]+", "-", file.name.split("-")[0]).lower() == locked.name


def sha256(path: Path) -> str:
    """Digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
