"""Bring a lock's wheels into the Nix store: `python3 nix/add_wheels.py [--cuda] [PACKAGE ...]`.

The files come from the store of wheels that Bazel uses too, and from pip where it lacks them
(third_party/pypi/store.py), so pip's own configuration decides where from. Each is compared with
its locked sha256 and added to the Nix store (nix/add_files.py). Pip takes wheels for the
Python that it runs under: 3.11 for the CPU lock, 3.12 for the CUDA one.
"""

import argparse
import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nix.add_files import add_files
from slime.doctor.lock_file import Locked, LockError, read_lock
from third_party.pypi.store import Requirement, StoreError, fetch, store_root, wheel_of

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {False: ("requirements.lock.txt", (3, 11)), True: ("requirements.cuda.lock.txt", (3, 12))}


def wheel_file(store: Path, package: Locked) -> Path:
    """The wheel in the store of wheels.

    Raises:
        StoreError: the file is not the locked one.
    """
    pin = f"{package.name}=={package.version}"
    wheel = wheel_of(store, requirement(package))
    assert wheel is not None, pin
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != package.sha256:
        raise StoreError(
            f"{pin}: wrong hash\n  locked:  {package.sha256}\n  found:   {found}\n"
            f"  what to do: remove {wheel.parent} and run this again"
        )
    return wheel


def requirement(package: Locked) -> Requirement:
    """The lock's line as the store of wheels takes it."""
    return Requirement(f"{package.name}=={package.version} --hash=sha256:{package.sha256}")


def wanted(lock: Path, names: list[str]) -> list[Locked]:
    """The packages named, or all of the lock.

    Raises:
        LockError: the lock cannot be read, or has none of that name.
    """
    packages = read_lock(lock)
    if unknown := sorted(set(names) - packages.keys()):
        raise LockError(f"{', '.join(unknown)} is not in {lock.name}")
    return [packages[name] for name in names] or list(packages.values())


def main(argv: list[str] | None = None) -> int:
    """Add the wheels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true", help="of the CUDA lock")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="only these")
    options = parser.parse_args(argv)
    file, python = LOCKS[options.cuda]
    if sys.version_info[:2] != python:
        here, there = (".".join(map(str, one)) for one in (sys.version_info[:2], python))
        print(f"{file} is for Python {there}, this is {here}: run python{there}", file=sys.stderr)
        return 1
    store = store_root()
    try:
        packages = wanted(ROOT / file, options.packages)
        store.mkdir(parents=True, exist_ok=True)
        fetch(store, [requirement(package) for package in packages])
        files = {package: wheel_file(store, package) for package in packages}
    except (LockError, StoreError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return add_files("wheels", files)


if __name__ == "__main__":
    sys.exit(main())
