"""bazelw on machines of several kinds, each played by a folder of small programs as its PATH."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BAZELW = Path(os.environ["SLIME_RUNFILES"], "bazelw")
BAZEL = 'case "$1" in --version) echo "bazel {}";; *) echo "ran: $*";; esac'
PYTHON = f'[ "$2" = pip ] && exit {{}}; exec {sys.executable} "$@"'


@dataclass
class Machine:
    """A PATH made of the given programs, those in `late` after those in `bin`."""

    folder: Path
    programs: dict[str, str] = field(default_factory=dict)

    def add(self, folder: str, name: str, script: str) -> None:
        """Write one program."""
        path = self.folder / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def bazelw(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it."""
        path = f"{self.folder / 'bin'}:{self.folder / 'late'}"
        command = [str(shutil.copy(BAZELW, self.folder)), *arguments]
        return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A user's machine with Python 3.11 and pip, without Bazel."""
    made = Machine(tmp_path)
    for tool in ("cat", "dirname", "head", "mktemp", "rm"):
        made.add("bin", tool, f'exec {shutil.which(tool)} "$@"')
    made.add("bin", "id", "echo 1000")
    made.add("bin", "python3", PYTHON.format(0))
    return made


def become_root(machine: Machine, brings: str = "") -> None:
    """Root, with an apt-get that installs by running `brings`."""
    machine.add("bin", "id", "echo 0")
    (machine.folder / "ready").mkdir()
    machine.add("ready", "bazel", BAZEL.format("no_version"))
    machine.add("ready", "python3", PYTHON.format(0))
    install = brings.format(cp=shutil.which("cp"))
    script = f'cd {machine.folder}; echo "apt-get $*" >> log; [ "$1" = update ] || {install}'
    machine.add("bin", "apt-get", script)


@pytest.mark.parametrize("version", ["no_version", "4.2.3", "7.7.1", "8.0.0", "10.1.0"])
def test_uses_a_usable_bazel(machine: Machine, version: str):
    machine.add("bin", "bazel", BAZEL.format(version))
    done = machine.bazelw("test", "//a:b", "--x=a b")
    assert (done.returncode, done.stdout) == (0, "ran: test //a:b --x=a b\n")
    assert done.stderr == ""


@pytest.mark.parametrize("version", [None, "5.4.0", "6.5.0"])
def test_root_gets_bazel_installed(machine: Machine, version: str | None):
    if version:
        machine.add("late", "bazel", BAZEL.format(version))
    become_root(machine, "{cp} ready/bazel bin/bazel")
    done = machine.bazelw("info")
    assert (done.returncode, done.stdout) == (0, "ran: info\n")
    log = (machine.folder / "log").read_text()
    assert "install -y --no-install-recommends bazel-bootstrap" in log
    assert (version is None) or f"neither 4.x nor 7 or newer: bazel {version}" in done.stderr


def test_others_are_told_what_to_install(machine: Machine):
    done = machine.bazelw("info")
    assert done.returncode == 1 and done.stdout == ""
    assert "as root: apt-get install --no-install-recommends bazel-bootstrap" in done.stderr


def test_without_pip(machine: Machine):
    machine.add("bin", "bazel", BAZEL.format("7.7.1"))
    machine.add("bin", "python3", PYTHON.format(1))
    done = machine.bazelw("info")
    assert done.returncode == 1
    assert "apt-get install --no-install-recommends python3-pip" in done.stderr

    become_root(machine, "{cp} ready/python3 bin/python3")
    done = machine.bazelw("info")
    assert (done.returncode, done.stdout) == (0, "ran: info\n")


def test_another_python_is_not_enough(machine: Machine):
    machine.add("bin", "bazel", BAZEL.format("7.7.1"))
    machine.add("bin", "python3", "exit 1")
    done = machine.bazelw("info")
    assert done.returncode == 1
    assert "Python 3.11 is not on PATH" in done.stderr


def test_failing_apt_shows_its_output(machine: Machine):
    become_root(machine, "(echo 'E: no such package'; exit 100)")
    done = machine.bazelw("info")
    assert done.returncode == 1
    assert "E: no such package" in done.stderr
