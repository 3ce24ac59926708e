"""The clock of the machine is set by a day while a real engine is watched: nobody takes that for a
time that has passed, and nobody stops watching."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from slime.engines.engine import State
from slime.engines.servers import RolloutServers
from tests.engines.real_servers import generate, make_args, save_model

DAY = 24 * 3600.0
# Python finds it on the path of the engine's processes and runs it first in each of them.
STEPPED = """
import time

_time = time.time


def _stepped():
    with open({step!r}) as file:
        return _time() + float(file.read())


time.time = _stepped
"""


@pytest.fixture(scope="module")
def set_clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[float], None]]:
    """A function: from now on the clock is so many seconds wrong, here and in the engine."""
    folder = tmp_path_factory.mktemp("clock")
    step = folder / "step"

    def set_clock(seconds: float) -> None:
        new = folder / "new"
        new.write_text(str(seconds))
        os.replace(new, step)

    set_clock(0.0)
    (folder / "sitecustomize.py").write_text(STEPPED.format(step=str(step)))
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        patch.setattr(time, "time", lambda: real() + float(step.read_text()))
        yield set_clock


@pytest.fixture(scope="module")
def kept(set_clock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RolloutServers]:
    flags = ("--use-fault-tolerance", "--rollout-health-check-interval", "1")
    flags += ("--rollout-health-check-timeout", "5")
    model = save_model(tmp_path_factory.mktemp("model"))
    args = make_args(model, tmp_path_factory.mktemp("kept"), *flags)
    servers = RolloutServers(args, args.run_dir)
    servers.start(progress=print)
    yield servers
    servers.stop()


def log_times(servers: RolloutServers) -> set[str]:
    """The days on which the engine says it wrote its log."""
    lines = Path(servers.engines[0].process.log).read_text().splitlines()
    return {line[1:11] for line in lines if line.startswith("[2")}


@pytest.mark.parametrize("seconds", [DAY, -DAY], ids=["forth", "back"])
def test_a_step_of_the_clock_is_no_time_out(kept, set_clock, seconds):
    engine, router = kept.engines[0], kept.routers[0]
    pids = engine.process.pid, router.process.pid
    before = log_times(kept)
    set_clock(seconds)
    until = time.monotonic() + 8  # several health checks of each kind
    while time.monotonic() < until:
        assert len(generate(kept.router_url, [[5, 9, 3]])) == 1
        assert not kept.check()
    assert engine.state is State.SERVING
    assert (engine.process.pid, router.process.pid) == pids
    assert log_times(kept) - before, "the engine has not seen the step"


def test_a_frozen_engine_is_noticed_after_a_step_back(kept, set_clock):
    set_clock(-2 * DAY)
    engine = kept.engines[0]
    pid = engine.process.pid
    time.sleep(2)  # so that a health check has been made since
    family = psutil.Process(pid).children(recursive=True)
    scheduler = next(p for p in family if "scheduler" in "".join(p.cmdline()))
    os.kill(scheduler.pid, signal.SIGSTOP)
    deadline = time.monotonic() + 60
    while engine.process.pid == pid:
        assert time.monotonic() < deadline
        time.sleep(0.1)
