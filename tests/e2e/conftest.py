"""Starts the real job as a user does."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.job import Job
from tests.e2e.ray_node import ray_head

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
def ray_cluster() -> Iterator[str]:
    """The address of a Ray that somebody else started, with four CPUs and a token."""
    with ray_head(4) as address:
        yield address
