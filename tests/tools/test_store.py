"""The store of wheels: what it makes, that it makes it once, and what it says when it cannot."""

import importlib.util
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from third_party.pypi import store as store_module
from third_party.pypi.store import main

WRONG = "0" * 64


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store; retries do not wait."""
    monkeypatch.setenv("SLIME_PYPI_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(store_module.time, "sleep", lambda _: None)
    return tmp_path / "store"


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    """A repository's folder."""
    (tmp_path / "dest").mkdir()
    return tmp_path / "dest"


def requirement(name: str, *digests: str) -> str:
    """A line of the lock."""
    return " ".join([f"{name}==1.0", *(f"--hash=sha256:{digest}" for digest in digests)])


def test_unpacks_compiles_and_stamps(make_wheel, dest: Path):
    digest = make_wheel(
        "tool",
        **{
            "tool/native.so": "#! as if executable",
            "tool-1.0.data/scripts/run": "#!python\n",
            "tool-1.0.data/purelib/tool/extra.py": "x = 1\n",
        },
    )
    assert main([str(dest), requirement("tool", WRONG, digest)]) == 0
    site = dest / "site-packages"
    assert (dest / "stamp").read_text() == f"tool==1.0 sha256:{digest} layout:1\n"
    assert (site / "tool/extra.py").read_text() == "x = 1\n"
    assert os.access(site / "tool/native.so", os.X_OK)
    assert os.access(site / "bin/run", os.X_OK)
    assert not os.access(site / "tool/__init__.py", os.X_OK)

    compiled = Path(importlib.util.cache_from_source(site / "tool/__init__.py")).read_bytes()
    assert int.from_bytes(compiled[4:8], "little") == 1  # hash-based and unchecked (PEP 552)
    assert str((site / "tool/__init__.py").resolve()).encode() in compiled
    assert py_compile.PycInvalidationMode.UNCHECKED_HASH.value == 3


def test_second_build_needs_no_index(make_wheel, index: Path, dest: Path, tmp_path: Path):
    line = requirement("tool", make_wheel("tool"))
    assert main([str(dest), line]) == 0
    next(index.iterdir()).unlink()
    (tmp_path / "other").mkdir()
    assert main([str(tmp_path / "other"), line]) == 0
    both = [(folder / "site-packages").resolve() for folder in (dest, tmp_path / "other")]
    assert both[0] == both[1]


def test_brings_what_it_needs_along(make_wheel, store: Path, dest: Path, capsys):
    lines = [requirement(name, make_wheel(name)) for name in ("top", "low")]
    assert main([str(dest), *lines]) == 0
    assert len(list((store / "wheels").glob("*/*.whl"))) == 2
    assert "fetching top==1.0 and 1 more wheels" in capsys.readouterr().err


def test_simultaneous_builds_share_one_unpacking(make_wheel, store: Path, tmp_path: Path):
    line = requirement("tool", make_wheel("tool"))
    dests = [tmp_path / f"dest{i}" for i in range(4)]
    program = [sys.executable, store_module.__file__]
    for folder in dests:
        folder.mkdir()
    running = [subprocess.Popen([*program, str(folder), line]) for folder in dests]
    assert [process.wait(60) for process in running] == [0] * 4
    assert len({(folder / "site-packages").resolve() for folder in dests}) == 1
    assert len(list((store / "unpacked").iterdir())) == 1


def test_wrong_hash(make_wheel, dest: Path, capsys):
    digest = make_wheel("tool")
    good = requirement("low", make_wheel("low"))
    assert main([str(dest), requirement("tool", WRONG), good]) == 1
    message = capsys.readouterr().err.split("\n\n")[-1]
    assert message.startswith("cannot get tool==1.0: wrong hash\n")
    assert f"locked:  {WRONG}" in message and f"offered: {digest}" in message
    assert "//tools:lock" in message
    assert not (dest / "stamp").exists()


def test_says_which_of_many_is_missing(make_wheel, dest: Path, capsys):
    lines = [requirement("tool", make_wheel("tool")), requirement("nowhere", WRONG)]
    assert main([str(dest), *lines]) == 1
    message = capsys.readouterr().err.split("\n\n")[-1]
    assert message.startswith("cannot get nowhere==1.0: the package index has no such wheel")


def test_no_network(dest: Path, capsys, monkeypatch):
    """No route, as in this very sandbox: three attempts, then one message that names the cause."""
    monkeypatch.setenv("PIP_INDEX_URL", "https://192.0.2.1/simple")
    assert main([str(dest), requirement("tool", WRONG)]) == 1
    error = capsys.readouterr().err
    assert error.count("trying again") == 2
    message = error.split("\n\n")[-1]
    assert message.startswith("cannot get tool==1.0: the package index cannot be reached\n")
    assert "pip config list" in message


def test_refuses_a_wheel_that_reaches_outside(make_wheel, store: Path, dest: Path, capsys):
    digest = make_wheel("tool", **{"../../outside.py": "x = 1\n"})
    assert main([str(dest), requirement("tool", digest)]) == 1
    assert "holds a path outside itself: ../../outside.py" in capsys.readouterr().err
    assert not list(store.rglob("outside.py")) and not list((store / "unpacked").iterdir())
