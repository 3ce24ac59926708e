"""Locks, wheels and Debian packages of a test's own making, and the locked wheels."""

import hashlib
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("SLIME_RUNFILES", os.getcwd()))


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    """``make_wheel(name, metadata_lines, **files)`` writes a wheel, version 1.0, into `wheels/`."""
    folder = tmp_path / "wheels"
    folder.mkdir()

    def make(name: str, fields: str = "", **files: str) -> Path:
        wheel = folder / f"{name}-1.0-py3-none-any.whl"
        metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{fields}"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in {f"{name}-1.0.dist-info/METADATA": metadata, **files}.items():
                archive.writestr(path, text)
        return wheel

    return make


@pytest.fixture
def make_deb(tmp_path: Path) -> Callable[..., Path]:
    """``make_deb(name, tree)`` lets Debian's own program pack the folder ``tree``."""
    folder = tmp_path / "debs"
    folder.mkdir()

    def make(name: str, tree: Path, version: str = "1:2.0~rc1+b3") -> Path:
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n"
            "Maintainer: nobody\nDescription: a test\n"
        )
        file = folder / f"{name}_{version.replace(':', '%3a')}_amd64.deb"
        command = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(file)]
        subprocess.run(command, check=True, capture_output=True)
        return file

    return make


@pytest.fixture
def write_lock(tmp_path: Path) -> Callable[..., Path]:
    """``write_lock(name, **files)`` locks files by their true digests; a text is taken as it is."""

    def write(name: str, version: str, **files: Path) -> Path:
        rows = [
            f"{key.replace('_', '-')}=={version} \\\n"
            f"    --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"
            for key, file in files.items()
        ]
        lock = tmp_path / name
        lock.write_text("# a comment\n" + "".join(rows))
        return lock

    return write
