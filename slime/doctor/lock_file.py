"""Reads a lock of packages, strictly: one version and one hash for each. requirements.lock.txt and
the CUDA one hold wheels; the lock of the CPU image's Debian packages is written in the same way."""

import re
from dataclasses import dataclass
from pathlib import Path

_PIN = re.compile(r"([a-z0-9.+-]+)==([^\s\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class LockError(Exception):
    """A lock cannot be read; the message has the file, the line, what was expected and found."""


@dataclass(frozen=True)
class Locked:
    """One locked package; `sha256` is that of its file."""

    name: str
    version: str
    sha256: str

    @property
    def pin(self) -> str:
        """`name==version`."""
        return f"{self.name}=={self.version}"


def read_lock(file: Path) -> dict[str, Locked]:
    """Package name -> what is locked.

    Raises:
        LockError: a line is not `name==version --hash=sha256:...`, or a name comes twice.
        OSError: there is no such file.
    """
    packages: dict[str, Locked] = {}
    for number, line in _lines(file.read_text(encoding="utf-8")):
        pin, *hashes = line.split()
        named = _PIN.fullmatch(pin)
        digests = [match[1] for match in map(_HASH.fullmatch, hashes) if match]
        where = f"{file.name}:{number}"
        if named is None:
            raise LockError(f"{where}: expected `name==version`, found `{pin}`")
        if len(digests) != 1 or len(hashes) != 1:
            found = " ".join(hashes) or "nothing"
            wanted = "one `--hash=sha256:<64 hex digits>`"
            raise LockError(f"{where}: {pin}: expected {wanted}, found `{found}`")
        if named[1] in packages:
            other = packages[named[1]].version
            raise LockError(f"{where}: {named[1]} is locked twice: {other} and {named[2]}")
        packages[named[1]] = Locked(named[1], named[2], digests[0])
    return packages


def _lines(text: str) -> list[tuple[int, str]]:
    """Line number and text; a line that ends with a backslash goes on in the next."""
    found, begun, number = [], "", 1
    for here, line in enumerate(text.splitlines(), 1):
        number = number if begun else here
        begun += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if begun.strip() and not begun.startswith("#"):
            found.append((number, begun))
        begun = ""
    return [*found, (number, begun)] if begun.strip() else found
