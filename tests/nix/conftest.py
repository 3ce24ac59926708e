"""A copy of the flake that a test may change, and a Nix with a store of its own.

Without Nix these tests are skipped; in CI, which sets SLIME_CI, they fail then.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tools.wheel_index import index, make_wheel

__all__ = ["index", "make_wheel"]

ROOT = Path(os.environ["SLIME_RUNFILES"])
PARTS = (
    *("flake.nix", "flake.lock", "requirements.lock.txt", "requirements.cuda.lock.txt"),
    *("ci/image", "nix", "slime", "third_party/pypi"),
)
STUB = ("--override-input", "nixpkgs", "path:./nix/stub", "--no-write-lock-file")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass
class Flake:
    """The copy, and how to call Nix on it."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy's folder."""
        environment = self.environment | variables
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120
        )

    def nix(self, *arguments: str) -> str:
        """What Nix prints; fails the test if Nix fails."""
        done = self.run("nix", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def error(self, *arguments: str) -> str:
        """What Nix says when it refuses; fails the test if it does not."""
        done = self.run("nix", *arguments)
        assert done.returncode != 0, "Nix accepts it"
        return done.stderr

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace a text that occurs in a file."""
        text = (self.folder / file).read_text()
        assert old in text, f"{file} has no {old}"
        (self.folder / file).write_text(text.replace(old, new))


@pytest.fixture(scope="session")
def nix_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Nix's folders below a temporary one. The machine's certificates stay as they are."""
    if shutil.which("nix") is None:
        reason = "Nix is not installed (Debian: apt-get install --no-install-recommends nix-bin)"
        pytest.fail(reason) if os.environ.get("SLIME_CI") else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("nix")
    own = {"NIX_STORE_DIR": "store", "NIX_STATE_DIR": "var", "NIX_LOG_DIR": "log", "HOME": "home"}
    own |= {"XDG_CACHE_HOME": "cache", "NIX_LOCALSTATE_DIR": "local"}
    before = _digest(CERTIFICATES)
    yield {
        **os.environ,
        **{name: str(folder / path) for name, path in own.items()},
        "NIX_CONF_DIR": str(ROOT / "nix/offline"),
    }
    assert _digest(CERTIFICATES) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _digest(file: Path) -> str | None:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None


@pytest.fixture
def flake(nix_environment: dict[str, str], tmp_path: Path) -> Flake:
    """A fresh copy; it is no git tree, so Nix takes all of it."""
    folder = tmp_path / "flake"
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, folder / part, ignore=ignore)
        elif (ROOT / part).exists():
            folder.mkdir(exist_ok=True)
            shutil.copyfile(ROOT / part, folder / part)
    return Flake(folder, nix_environment)
