"""The job on a Ray of two nodes (a second raylet on this machine): each runs its own engine."""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from slime.engines.ports import free_ports
from tests.e2e.job import Job


def start_node(log: Path, *options: str) -> subprocess.Popen:
    """A raylet (with `--head`: and the rest of Ray)."""
    words = ["start", "--block", "--node-ip-address=127.0.0.1", *options]
    with log.open("w") as output:
        node = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *words],
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    deadline = time.monotonic() + 90
    while "Ray runtime started" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    return node


def cut_power(node: subprocess.Popen) -> None:
    """Everything of the node is killed at once."""
    for process in [*psutil.Process(node.pid).children(recursive=True), node]:
        with contextlib.suppress(psutil.Error):
            process.kill()
    node.wait()


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Callable]]:
    """The address of a Ray with two CPUs here and one there, and what ends the second node."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    scratch = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: it holds sockets
    (port,) = free_ports(1)
    options = ("--head", f"--port={port}", f"--temp-dir={scratch}", "--include-dashboard=false")
    started = [start_node(tmp_path / "head.log", "--num-cpus=2", *options)]
    address = f"127.0.0.1:{port}"
    started.append(start_node(tmp_path / "other.log", "--num-cpus=1", f"--address={address}"))
    yield address, lambda: cut_power(started.pop())
    for node in reversed(started):
        cut_power(node)
    shutil.rmtree(scratch, ignore_errors=True)


def test_engines_on_two_nodes_and_a_node_that_is_lost(
    start_job: Callable[..., Job], nodes: tuple[str, Callable]
) -> None:
    address, lose_second = nodes
    options = ("--num-rollout=1000", "--skip-eval-before-train", "--rollout-num-gpus=2")
    job = start_job(*options, f"--ray-address={address}")
    job.wait_for_line("rollout 2/", 240)
    lose_second()
    assert job.wait(90) == 1, job.text
    assert "the run failed" in job.text
    for record in job.metrics("rollout"):
        assert record["rollout/weight_lag_max"] == 0
        assert record["train/train_rollout_logprob_abs_diff"] < 1e-4
    deadline = time.monotonic() + 20
    while job.processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert job.processes() == {}
