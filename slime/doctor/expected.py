"""The versions that slime expects: the lock of the device's platform and nix/pins.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slime.doctor.lock_file import LockError, read_lock

ROOT = Path(__file__).parents[2]  # of the checkout, or of Bazel's copy
LOCKS = {"cpu": "requirements.lock.txt", "cuda": "requirements.cuda.lock.txt"}
PINS = "nix/pins.json"


@dataclass(frozen=True)
class Expected:
    """What the files say; a version is of a distribution under its normalised name.

    Attributes:
        lock: Name of the lock that was read.
        locked: Package -> version.
        python: The Python for which the lock's wheels are.
        pinned: Packages of the GPU stack -> version; empty on a CPU.
        cuda: Version of CUDA, as `13.0`.
    """

    lock: str
    locked: Mapping[str, str]
    python: tuple[int, int]
    pinned: Mapping[str, str]
    cuda: str


def read_expected(device: str, root: Path = ROOT) -> Expected:
    """Read the lock for `device` and the pins.

    Raises:
        LockError: a file cannot be understood; the message names it.
        FileNotFoundError: there is no such file beside this installation.
    """
    locked = {one.name: one.version for one in read_lock(root / LOCKS[device]).values()}
    try:
        pins = json.loads((root / PINS).read_text(encoding="utf-8"))
        packages = {name: pin["version"] for name, pin in pins["packages"].items()}
        major, minor = map(int, pins["python"]["version"].split("."))
        cuda = pins["cuda"]["version"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LockError(f"{PINS}: cannot be read: {error!r}") from None
    return Expected(
        lock=LOCKS[device],
        locked=locked,
        python=(major, minor) if device == "cuda" else (3, 11),
        pinned=packages if device == "cuda" else {},
        cuda=cuda,
    )
