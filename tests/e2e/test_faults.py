"""Parts of a run are killed, or it is told to stop: it ends in time, says why, leaves nothing."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.job import Job, assert_nothing_left
from tests.e2e.random_rollouts import save_random_rollouts


@pytest.mark.parametrize(
    ("victim", "ranks", "said"),
    [
        pytest.param("sglang::scheduler", 1, "engine", id="engine"),
        pytest.param("ray::TrainActor", 2, r"train rank [01] died", id="train-rank"),
        pytest.param("ray::RolloutManager", 1, "rollout manager died", id="rollout-manager"),
    ],
)
def test_a_killed_part_ends_the_run_with_the_cause(
    start_job: Callable[..., Job], victim: str, ranks: int, said: str
) -> None:
    job = start_job("--num-rollout=1000", f"--actor-num-gpus-per-node={ranks}")
    job.wait_for_line("rollout 2/")
    files = job.files()
    pids = [pid for pid, command in job.processes().items() if victim in command]
    os.kill(max(pids), signal.SIGKILL)
    started = time.monotonic()
    assert job.wait(60) == 1, job.text
    assert time.monotonic() - started < 60
    assert "the run failed" in job.text
    assert re.search(said, job.text), job.text[-4000:]
    assert_nothing_left(job, files)


def test_a_frozen_engine_ends_the_run_with_the_cause(start_job: Callable[..., Job]) -> None:
    probes = ("--rollout-health-check-interval=2", "--rollout-health-check-timeout=4")
    job = start_job("--num-rollout=1000", *probes)
    job.wait_for_line("rollout 2/")
    files = job.files()
    os.kill(job.pid_of("sglang::scheduler"), signal.SIGSTOP)
    assert job.wait(60) == 1, job.text
    assert "engine 0" in job.text
    assert_nothing_left(job, files)


def test_a_frozen_train_rank_ends_the_run_with_the_cause(
    start_job: Callable[..., Job], tmp_path: Path
) -> None:
    dump = save_random_rollouts(tmp_path, 100)
    given = ("--debug-train-only", f"--load-debug-rollout-data={dump}")
    job = start_job(*given, "--num-rollout=100", "--train-stall-timeout=10")
    job.wait_for_line("rollout 2/")
    files = job.files()
    os.kill(job.pid_of("ray::TrainActor"), signal.SIGSTOP)
    assert job.wait(60) == 1, job.text
    assert "no answer after 10 s from train rank 0" in job.text
    assert_nothing_left(job, files)


@pytest.mark.parametrize(
    ("line", "number"),
    [
        pytest.param("starting Ray", signal.SIGINT, id="ctrl-c-at-the-start"),
        pytest.param("starting the router", signal.SIGTERM, id="sigterm-while-engines-start"),
    ],
)
def test_a_signal_leaves_nothing_within_15_seconds(
    start_job: Callable[..., Job], line: str, number: int
) -> None:
    job = start_job("--num-rollout=1000")
    job.wait_for_line(line)
    time.sleep(1.0)
    files = job.files()
    started = time.monotonic()
    job.process.send_signal(number)
    assert job.wait(30) == 128 + number, job.text
    assert time.monotonic() - started < 15
    assert "stopped by" in job.text
    assert_nothing_left(job, files)


def test_kill_9_of_the_driver_leaves_nothing(start_job: Callable[..., Job]) -> None:
    job = start_job("--num-rollout=1000")
    job.wait_for_line("rollout 1/")
    files = job.files()
    job.process.kill()
    deadline = time.monotonic() + 15
    while job.processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert_nothing_left(job, files)
