"""Wheels become one folder: exact, again and again, and only if they are the locked ones."""

import sys
import zipfile
from pathlib import Path

import pytest

from tests.nix.conftest import ROOT, Flake, contents

SITE = ".#packages.x86_64-linux.site-cpu"
ADD = (sys.executable, "nix/add_wheels.py")


def write_lock(flake: Flake, digests: dict[str, str]) -> None:
    lines = [f"{name}==1.0 \\\n    --hash=sha256:{digests[name]}\n" for name in sorted(digests)]
    (flake.folder / "requirements.lock.txt").write_text("# A comment.\n" + "".join(lines))


@pytest.fixture
def small(flake: Flake, make_wheel, index: Path, monkeypatch: pytest.MonkeyPatch) -> Flake:
    """The flake with a lock of two small wheels, which pip finds in a folder."""
    scripts = {"top-1.0.data/scripts/run": "#!python\n"}
    write_lock(flake, {"low": make_wheel("low"), "top": make_wheel("top", **scripts)})
    flake.environment = flake.environment | {
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_INDEX": "1",
        "SLIME_PYPI_STORE": str(index.parent / "wheels"),
    }
    return flake


def test_holds_what_the_wheels_hold(small: Flake, index: Path):
    assert small.run(*ADD).stdout == "added 2 wheels to the Nix store\n"
    small.nix("build", SITE)
    expected = {}
    for wheel in index.iterdir():
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                expected[name.replace("top-1.0.data/scripts/", "bin/")] = archive.read(name)
    assert contents(small.folder / "result") == expected
    assert (small.folder / "result/bin/run").stat().st_mode & 0o111


def test_is_the_same_again(small: Flake):
    """Nix itself compares: a second build that differs is an error."""
    small.run(*ADD)
    small.nix("build", SITE)
    small.nix("build", SITE, "--rebuild")


def test_says_how_to_bring_a_missing_wheel(small: Flake, make_wheel):
    digest = make_wheel("never-added")
    write_lock(small, {"never-added": digest})
    error = small.error("build", "-L", SITE)
    assert f"never-added==1.0 (sha256 {digest}) is not in the Nix store" in error
    assert "run python3 nix/add_wheels.py" in error


def test_tampered_wheel(small: Flake, make_wheel):
    """The index has another file than the one that was locked."""
    lock = (small.folder / "requirements.lock.txt").read_text()
    offered = make_wheel("low", **{"low/more.py": "x = 1\n"})
    done = small.run(*ADD)
    assert done.returncode == 1
    locked = lock.split("low==1.0 \\\n    --hash=sha256:")[1][:64]
    assert f"cannot get low==1.0: wrong hash\n  locked:  {locked}\n  offered: {offered}" in (
        done.stderr
    )


def test_wheel_damaged_in_the_store_of_wheels(small: Flake, index: Path):
    small.run(*ADD)
    (wheel,) = (index.parent / "wheels/wheels").glob("*/low-1.0-py3-none-any.whl")
    locked = wheel.parent.name
    wheel.write_bytes(b"not what was locked")
    done = small.run(*ADD)
    assert done.returncode == 1
    assert "low==1.0: wrong hash" in done.stderr and f"locked:  {locked}" in done.stderr


def test_unreadable_lock_line(small: Flake):
    small.edit("requirements.lock.txt", "low==1.0", "low=1.0")
    done = small.run(*ADD)
    assert done.returncode == 1
    assert "requirements.lock.txt:2: expected `name==version`" in done.stderr
    assert "found `low=1.0" in done.stderr


def test_unknown_package(small: Flake):
    done = small.run(*ADD, "nowhere")
    assert done.returncode == 1 and "nowhere is not in requirements.lock.txt" in done.stderr


def test_cuda_lock_wants_its_own_python(small: Flake):
    done = small.run(*ADD, "--cuda")
    assert done.returncode == 1
    assert "requirements.cuda.lock.txt is for Python 3.12, this is 3.11" in done.stderr


def test_two_wheels_with_different_files_of_one_name(small: Flake, make_wheel):
    digests = {"low": make_wheel("low"), "top": make_wheel("top", **{"low/__init__.py": "y = 2\n"})}
    write_lock(small, digests)
    small.run(*ADD)
    error = small.error("build", "-L", SITE)
    assert "low/__init__.py differs between" in error
    assert "low-1.0.whl and" in error and "top-1.0.whl" in error


def test_commands_of_the_document(small: Flake):
    """docs/nix.md shows them for any Debian machine; the builds here have the small lock."""
    tree = (ROOT / "flake.nix").resolve().parent  # runfiles are links into the source tree
    text = (tree / "docs/nix.md").read_text()
    section = text.partition("\n## On any Debian machine\n")[2].partition("\n## ")[0]
    commands = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    first_build = commands.index("python3 nix/add_wheels.py")
    lock = small.folder / "requirements.lock.txt"
    few = lock.read_text()
    for part, content in (
        (commands[:first_build], (ROOT / lock.name).read_text()),
        (commands[first_build:], few),
    ):
        lock.write_text(content)
        done = small.run("bash", "-c", "\n".join(["set -eux", *part]))
        assert done.returncode == 0, done.stderr
