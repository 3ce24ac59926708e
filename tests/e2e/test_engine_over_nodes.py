"""The job on a Ray of two nodes (a second raylet on this machine) with one engine over both."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.job import Job
from tests.e2e.ray_node import cut_power, ray_head, start_node


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A Ray with two CPUs here (a train rank and half of the engine) and one there."""
    with ray_head(2) as head:
        other = start_node(tmp_path / "other.log", "--num-cpus=1", f"--address={head}")
        yield head
        cut_power(other)


def commands() -> dict[int, list[str]]:
    """Everything that runs below this test, on both nodes: pid -> command line."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process.cmdline()
    return found


def servers() -> list[psutil.Process]:
    """The engine's two processes in the order of their nodes."""
    found = {}
    for pid, words in commands().items():
        if "slime.engines.cpu_launch" in words:
            found[words[words.index("--node-rank") + 1]] = psutil.Process(pid)
    return [found[rank] for rank in sorted(found)]


def of_the_engine() -> set[int]:
    """Its processes, whoever their parent is."""
    lines = {pid: " ".join(words) for pid, words in commands().items()}
    parts = ("cpu_launch", "sglang::scheduler", "sglang::detokenizer")
    return {pid for pid, line in lines.items() if any(part in line for part in parts)}


def owner(server: psutil.Process) -> str:
    """The Ray actor that started it."""
    (line,) = [" ".join(p.cmdline()) for p in server.parents() if "ray::" in "".join(p.cmdline())]
    return line


def test_rollouts_updates_and_a_rank_that_is_killed(
    start_job: Callable[..., Job], address: str
) -> None:
    options = (
        *("--rollout-num-gpus=2", "--rollout-num-gpus-per-engine=2", "--num-gpus-per-node=1"),
        *("--num-rollout=1000", "--skip-eval-before-train", "--use-fault-tolerance"),
        *("--check-weight-update-equal", f"--ray-address={address}"),
    )
    job = start_job(*options)
    job.wait_for_line("rollout 2/", 400)
    first, second = servers()
    assert "RolloutManager" in owner(first) and "HostActor" in owner(second)  # the other node
    old = of_the_engine()
    assert len(old) > 4  # two servers, their schedulers, a detokenizer
    second.kill()
    log = job.run_dir / "logs" / "rollout_manager.log"
    wait_for(lambda: "engine 0 serves again" in log.read_text(), 300)
    job.forget_lines()
    for _ in range(2):
        job.wait_for_line("rollout ", 200)
    assert "engine 0 node 1" in log.read_text() and "was killed by SIGKILL" in log.read_text()
    assert len(servers()) == 2 and not of_the_engine() & old
    for record in job.metrics("rollout"):
        assert record["rollout/weight_lag_max"] == 0
        assert record["train/train_rollout_logprob_abs_diff"] < 1e-4
    job.process.send_signal(signal.SIGINT)
    job.wait(90)
    wait_for(lambda: of_the_engine() == set(), 20)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
