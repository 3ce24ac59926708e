"""The locks: their files agree and fit what was asked; re-locking says what it changes."""

import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from tools.lock import lock, lock_cuda, read_requirements
from tools.lock_cuda import best_wheel, ranks

ROOT = Path(os.environ["SLIME_RUNFILES"])
LOCKS = {
    "requirements.lock.txt": "requirements.in",
    "requirements.cuda.lock.txt": "requirements.cuda.in",
}


def read_bzl(root: Path) -> dict[str, SimpleNamespace]:
    """lock.bzl, whose syntax is Python's too."""
    names = {"struct": SimpleNamespace}
    exec((root / "third_party/pypi/lock.bzl").read_text(), names)
    return names["PACKAGES"]


def read_txt(root: Path, file: str = "requirements.lock.txt") -> dict[str, tuple[str, list[str]]]:
    """A lock as name -> (version, digests)."""
    text = (root / file).read_text().replace("\\\n", " ")
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


@pytest.mark.parametrize("file", LOCKS)
def test_one_sha256_for_each_package(file: str):
    for _, digests in read_txt(ROOT, file).values():
        assert [bool(re.fullmatch("[0-9a-f]{64}", digest)) for digest in digests] == [True]


@pytest.mark.parametrize("file", [*LOCKS, *LOCKS.values(), "third_party/pypi/lock.bzl"])
def test_names_no_host(file: str):
    assert "://" not in (ROOT / file).read_text()


@pytest.mark.parametrize("file", LOCKS)
def test_fits_what_was_asked(file: str):
    locked = read_txt(ROOT, file)
    for wanted in read_requirements(ROOT / LOCKS[file]):
        specifier = Requirement(wanted.requirement).specifier
        assert specifier.contains(locked[wanted.name][0], True), wanted


def test_needs_that_metadata_does_not_name():
    packages = read_bzl(ROOT)
    for wanted in read_requirements(ROOT / "requirements.in"):
        assert set(wanted.needs) <= set(packages[wanted.name].deps)


def test_both_platforms_have_the_same_stack():
    cpu, cuda = read_txt(ROOT), read_txt(ROOT, "requirements.cuda.lock.txt")
    for name in ("megatron-core", "ray", "sglang", "sglang-router", "transformers"):
        assert cpu[name][0] == cuda[name][0], name


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


def test_says_when_only_a_hash_changes(workspace: Path, make_wheel):
    old = make_wheel("low")
    (workspace / "requirements.in").write_text("low\n")
    lock(workspace, False, [])
    new = make_wheel("low", **{"low/more.py": "x = 1\n"})
    told = lock(workspace, False, []).splitlines()
    assert told == ["lock: 1 packages, 1 changed", f"  rehashed low 1.0: {old} -> {new}"]


def test_mends_a_lock_that_cannot_be_read(workspace: Path, make_wheel):
    low = make_wheel("low")
    (workspace / "requirements.in").write_text("low\n")
    (workspace / "requirements.lock.txt").write_text("<<<<<<< ours\nlow=1.0 --hash\n")
    lock(workspace, False, [])
    assert read_txt(workspace) == {"low": ("1.0", [low])}


def test_cuda_set_is_resolved_for_its_own_python(workspace: Path, make_wheel):
    """A need of Python 3.12 is taken and one of 3.11 is not, whichever runs this."""
    newer = "newer; python_version >= '3.12'"
    top = make_wheel("top", needs=("low", newer, "older; python_version < '3.12'"))
    low, new = make_wheel("low"), make_wheel("newer")
    (workspace / "requirements.cuda.in").write_text("top  # the one thing\n")
    assert lock_cuda(workspace, False, []).startswith("lock: 3 packages, 3 changed\n")
    file = "requirements.cuda.lock.txt"
    expected = {"low": ("1.0", [low]), "newer": ("1.0", [new]), "top": ("1.0", [top])}
    assert read_txt(workspace, file) == expected
    assert not (workspace / "requirements.lock.txt").exists()

    make_wheel("low", "2.0")
    assert lock_cuda(workspace, False, []) == "lock: 3 packages, 0 changed"
    assert "  changed  low 1.0 -> 2.0" in lock_cuda(workspace, False, ["low"])


def test_cuda_failure_changes_nothing(workspace: Path, make_wheel, capfd):
    make_wheel("low")
    (workspace / "requirements.cuda.in").write_text("low\nnowhere\n")
    (workspace / "requirements.cuda.lock.txt").write_text("before")
    with pytest.raises(SystemExit, match="nothing was changed"):
        lock_cuda(workspace, False, [])
    assert "nowhere" in capfd.readouterr().err
    assert (workspace / "requirements.cuda.lock.txt").read_text() == "before"


def listed(*tags: str) -> dict:
    """A package as pylock.toml lists it, with one wheel for each compatibility tag."""
    wheels = [
        {"url": f"file:///x/one-1.0%2Bcu130-{tag}.whl", "hashes": {"sha256": tag}} for tag in tags
    ]
    return {"name": "one", "version": "1.0+cu130", "wheels": wheels}


@pytest.mark.parametrize(
    ("tags", "best"),
    [
        (["py3-none-any", "cp312-cp312-manylinux_2_17_x86_64"], 1),
        (["cp312-cp312-manylinux2014_x86_64", "cp312-cp312-manylinux_2_28_x86_64"], 1),
        (["cp38-abi3-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_28_x86_64"], 0),
        (["cp312-cp312-manylinux_2_36_x86_64", "py3-none-manylinux1_x86_64"], 1),
        (["cp312-cp312-macosx_11_0_arm64", "py2.py3-none-any"], 1),
    ],
)
def test_takes_the_wheel_that_an_installer_would(tags: list[str], best: int):
    package = best_wheel(listed(*tags), ranks())
    assert (package.version, package.sha256) == ("1.0", tags[best])


def test_no_wheel_for_the_platform():
    with pytest.raises(SystemExit, match=r"one==1\.0\+cu130 has no wheel"):
        best_wheel(listed("cp311-cp311-manylinux_2_28_x86_64"), ranks())
