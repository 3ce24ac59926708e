"""Getting the base layer's packages, from an apt of the test's own: what is said when it fails."""

import hashlib
import re
from pathlib import Path

import pytest

from ci.image import base_debs
from ci.image.base_debs import DebError, fetch, main
from slime.doctor.lock_file import LockError, read_lock

# Brings `<name>_<version>.deb` of the folder beside it; knows no other version.
APT = """#!/bin/sh
shift
for pin; do
    name=${pin%%=*} version=${pin#*=}
    cp "$(dirname "$0")/${name}_$version.deb" . && continue
    echo "E: Version '$version' for '$name' was not found"
    exit 100
done
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stand-in for apt-get, alone on PATH with the system's; an empty store."""
    folder = tmp_path / "apt"
    folder.mkdir()
    (folder / "apt-get").write_text(APT)
    (folder / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("SLIME_DEB_STORE", str(tmp_path / "store"))
    return folder


def write_lock(tmp_path: Path, **files: bytes) -> Path:
    rows = [
        f"{name}==1.0 --hash=sha256:{hashlib.sha256(content).hexdigest()}\n"
        for name, content in files.items()
    ]
    lock = tmp_path / "base.deb.lock"
    lock.write_text("".join(rows))
    return lock


def test_fetches_once_and_links(apt: Path, tmp_path: Path):
    lock = write_lock(tmp_path, one=b"1", two=b"2")
    for name, content in {"one": b"1", "two": b"2"}.items():
        (apt / f"{name}_1.0.deb").write_bytes(content)
    dest = tmp_path / "dest"
    dest.mkdir()
    assert main(["fetch", str(lock), str(dest)]) == 0
    assert {file.name: file.read_bytes() for file in dest.iterdir()} == {
        "one_1.0.deb": b"1",
        "two_1.0.deb": b"2",
    }
    (apt / "apt-get").unlink()
    assert [file.read_bytes() for file in fetch(lock).values()] == [b"1", b"2"]


def test_a_tampered_package(apt: Path, tmp_path: Path):
    lock = write_lock(tmp_path, one=b"1")
    (apt / "one_1.0.deb").write_bytes(b"evil")
    with pytest.raises(DebError) as error:
        fetch(lock)
    expected, found = (hashlib.sha256(content).hexdigest() for content in (b"1", b"evil"))
    assert str(error.value).startswith(f"one==1.0\n  expected: {expected}\n  found:    {found} (")
    assert not list((tmp_path / "store").rglob("*.deb"))


def test_a_package_tampered_with_in_the_store(apt: Path, tmp_path: Path):
    lock = write_lock(tmp_path, one=b"1")
    (apt / "one_1.0.deb").write_bytes(b"1")
    (file,) = fetch(lock).values()
    file.write_bytes(b"evil")
    with pytest.raises(DebError, match=rf"one==1.0\n.*\n.*\({file}\)"):
        fetch(lock)


def test_a_version_that_is_gone(apt: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["fetch", str(write_lock(tmp_path, one=b"1")), str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "Version '1.0' for 'one' was not found" in said
    assert "what to do: apt-get update" in said


def test_no_apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLIME_DEB_STORE", str(tmp_path / "store"))
    with pytest.raises(DebError, match="apt-get is not on PATH"):
        fetch(write_lock(tmp_path, one=b"1"))


def test_a_wrong_line(tmp_path: Path):
    lock = tmp_path / "base.deb.lock"
    lock.write_text("libc6==2.36 --hash=sha256:abc\n")
    with pytest.raises(LockError, match="base.deb.lock:1: libc6==2.36: expected one"):
        fetch(lock)


def test_the_committed_lock():
    packages = list(read_lock(base_debs.LOCK))
    assert packages == sorted(packages)
    assert set(base_debs.WANTED) | {"libc6", "python3.11-minimal"} <= set(packages)
    assert not re.search(r"https?:|debian\.org", base_debs.LOCK.read_text())
