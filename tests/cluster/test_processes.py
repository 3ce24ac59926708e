"""Processes of a run are found and ended; nobody else's are."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.cluster import processes
from slime.cluster.processes import RUN_ID_VARIABLE, RunProcesses
from tests.cluster.ended import ended

SLEEP = "import time; time.sleep(60)"


def start(code: str, run_id: str, *, clear: bool = False) -> subprocess.Popen:
    env = {} if clear else {**os.environ, RUN_ID_VARIABLE: run_id}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def run_id() -> Iterator[str]:
    name = uuid.uuid4().hex
    yield name
    RunProcesses(name).end_all(grace=0.1)


def test_ends_only_the_processes_of_the_run(run_id: str) -> None:
    other = uuid.uuid4().hex
    ours, theirs = start(SLEEP, run_id), start(SLEEP, other)
    assert RunProcesses(run_id).end_all() == 1
    assert ours.wait(5) == -signal.SIGTERM
    assert theirs.poll() is None
    RunProcesses(other).end_all()
    theirs.wait(5)


def test_finds_a_child_that_cleared_its_environment(run_id: str) -> None:
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], env={{}})\n"
        "print(child.pid, flush=True); child.wait()"
    )
    parent = start(code, run_id)
    child = int(parent.stdout.readline())
    processes = RunProcesses(run_id)
    assert {process.pid for process in processes.refresh()} == {parent.pid, child}
    processes.end_all()
    parent.wait(5)
    assert ended(child)


def test_finds_a_child_in_the_middle_of_exec(run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment cannot be read yet; whoever starts it may be told to end just then."""
    child = start(SLEEP, run_id)
    read, empty = processes._read, iter([b""] * 3)

    def in_exec(pid: int, name: str) -> bytes:
        first = pid == child.pid and name == "environ"
        return next(empty, read(pid, name)) if first else read(pid, name)

    monkeypatch.setattr(processes, "_read", in_exec)
    assert RunProcesses(run_id, spare=frozenset({os.getpid()})).end_all() == 1
    assert child.wait(5) == -signal.SIGTERM


def test_an_orphan_seen_before_is_still_ended(run_id: str) -> None:
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], env={{}})\n"
        "print(child.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, RUN_ID_VARIABLE: run_id},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(parent.stdout.readline())
    processes = RunProcesses(run_id)
    processes.refresh()
    parent.kill()
    parent.wait(5)
    processes.end_all()
    assert ended(child)


def test_a_process_that_ignores_sigterm_is_killed(run_id: str) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    stubborn = start(code, run_id)
    stubborn.stdout.readline()
    RunProcesses(run_id).end_all(grace=0.3)
    assert stubborn.wait(5) == -signal.SIGKILL


def test_shared_memory_left_behind_is_removed(run_id: str) -> None:
    name = f"/dev/shm/slime-test-{run_id}"
    code = (
        "import mmap, time\n"
        f"f = open({name!r}, 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    holder = start(code, run_id)
    holder.stdout.readline()
    assert Path(name).exists()
    RunProcesses(run_id).end_all()
    holder.wait(5)
    assert not Path(name).exists()


def test_memory_counts_what_a_process_holds(run_id: str) -> None:
    hog = start(
        "b = bytearray(64 << 20); print(1, flush=True); import time; time.sleep(60)", run_id
    )
    hog.stdout.readline()
    assert 64 << 20 < RunProcesses(run_id).memory_bytes() < 96 << 20
