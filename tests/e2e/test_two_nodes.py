"""The job on a Ray of two nodes (a second raylet on this machine): each runs its own engine."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.job import Job
from tests.e2e.ray_node import cut_power, ray_head, start_node


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[str, Callable]]:
    """The address of a Ray with two CPUs here and one there, and what ends the second node."""
    with ray_head(2) as address:
        started = [start_node(tmp_path / "other.log", "--num-cpus=1", f"--address={address}")]
        yield address, lambda: cut_power(started.pop())
        for node in started:
            cut_power(node)


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
