"""The lock: both of its files agree, it fits requirements.in; re-locking says what it changes."""

import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from tools.lock import lock, read_requirements

ROOT = Path(os.environ["SLIME_RUNFILES"])


def read_bzl(root: Path) -> dict[str, SimpleNamespace]:
    """lock.bzl, whose syntax is Python's too."""
    names = {"struct": SimpleNamespace}
    exec((root / "third_party/pypi/lock.bzl").read_text(), names)
    return names["PACKAGES"]


def read_txt(root: Path) -> dict[str, tuple[str, list[str]]]:
    """requirements.lock.txt as name -> (version, digests)."""
    text = (root / "requirements.lock.txt").read_text().replace("\\\n", " ")
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {
        pin.partition("==")[0]: (
            pin.partition("==")[2],
            [digest.removeprefix("--hash=sha256:") for digest in digests],
        )
        for pin, *digests in lines
    }


def test_both_files_say_the_same():
    packages = read_bzl(ROOT)
    assert len(packages) > 100
    assert {name: (p.version, p.sha256) for name, p in packages.items()} == read_txt(ROOT)


def test_every_digest_is_a_sha256():
    for _, digests in read_txt(ROOT).values():
        assert digests and all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


def test_names_no_host():
    for file in ("requirements.in", "requirements.lock.txt", "third_party/pypi/lock.bzl"):
        assert "://" not in (ROOT / file).read_text()


def test_fits_what_was_asked():
    locked = read_txt(ROOT)
    packages = read_bzl(ROOT)
    for wanted in read_requirements(ROOT / "requirements.in"):
        specifier = Requirement(wanted.requirement).specifier
        assert specifier.contains(locked[wanted.name][0], True), wanted
        assert set(wanted.needs) <= set(packages[wanted.name].deps)


def test_needs_are_locked_and_without_a_cycle():
    left = {name: set(p.deps) for name, p in read_bzl(ROOT).items()}
    assert set().union(*left.values()) <= set(left)
    while ready := {name for name, needs in left.items() if not needs}:
        left = {name: needs - ready for name, needs in left.items() if name not in ready}
    assert not left


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace to lock in."""
    (tmp_path / "third_party/pypi").mkdir(parents=True)
    return tmp_path


def test_locks_keeps_and_upgrades(workspace: Path, make_wheel):
    top = make_wheel("top", needs=("low>=1", "absent; extra == 'more'", "win; os_name == 'nt'"))
    low = make_wheel("low")
    (workspace / "requirements.in").write_text("top  # the one thing\n")
    assert lock(workspace, False, []).splitlines() == [
        "lock: 2 packages, 2 changed",
        "  added    low 1.0",
        "  added    top 1.0",
    ]
    assert read_txt(workspace) == {"low": ("1.0", [low]), "top": ("1.0", [top])}
    assert read_bzl(workspace)["top"].deps == ["low"]

    newer = make_wheel("low", "2.0")
    assert lock(workspace, False, []) == "lock: 2 packages, 0 changed"
    assert "  changed  low 1.0 -> 2.0" in lock(workspace, False, ["low"])
    assert read_txt(workspace)["low"] == ("2.0", [newer])


def test_takes_a_package_without_its_needs(workspace: Path, make_wheel):
    make_wheel("heavy", needs=("cuda-things", "low"))
    make_wheel("low")
    make_wheel("hidden")
    wanted = "hidden\nlow\nheavy==1.0  # no-deps, needs: hidden\n"
    (workspace / "requirements.in").write_text(wanted)
    lock(workspace, True, [])
    assert read_bzl(workspace)["heavy"].deps == ["hidden", "low"]


def test_failure_changes_nothing(workspace: Path, make_wheel, capfd):
    make_wheel("low")
    (workspace / "requirements.in").write_text("low\n")
    lock(workspace, False, [])
    shutil.copy(workspace / "requirements.lock.txt", workspace / "before")
    (workspace / "requirements.in").write_text("low\nnowhere\n")
    with pytest.raises(SystemExit, match="nothing was changed"):
        lock(workspace, False, [])
    assert "nowhere" in capfd.readouterr().err
    before = (workspace / "before").read_text()
    assert (workspace / "requirements.lock.txt").read_text() == before
