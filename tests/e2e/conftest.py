"""Starts the real job as a user does."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.job import Job

CONFIG = "examples/quickstart/config.yaml"


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """``start_job(*options)`` starts the quick start with these options added."""
    jobs: list[Job] = []

    def start(*options: str, run_dir: Path | None = None) -> Job:
        run_dir, marker = run_dir or tmp_path / f"run{len(jobs)}", uuid.uuid4().hex
        command = [sys.executable, "-m", "slime.train", f"--config={CONFIG}", *options]
        process = subprocess.Popen(
            [*command, f"--run-dir={run_dir}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=os.environ.get("SLIME_RUNFILES", os.getcwd()),
            env={**os.environ, "SLIME_E2E_RUN": marker, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        jobs.append(Job(run_dir, marker, process))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end()


@pytest.fixture
def ray_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a Ray that somebody else started, with four CPUs and a token."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    scratch = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: it holds sockets
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--head", "--block", f"--port={port}", "--num-cpus=4", f"--temp-dir={scratch}"]
    options += ["--node-ip-address=127.0.0.1", "--include-dashboard=false"]
    with (tmp_path / "ray.log").open("w") as log:
        head = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", *options],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    deadline = time.monotonic() + 60
    while "Ray runtime started" not in (tmp_path / "ray.log").read_text():
        assert time.monotonic() < deadline, (tmp_path / "ray.log").read_text()
        time.sleep(0.2)
    yield f"127.0.0.1:{port}"
    head.terminate()
    head.wait(30)
    shutil.rmtree(scratch, ignore_errors=True)
