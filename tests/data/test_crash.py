"""A writer is killed in the middle of a save: what is read afterwards is whole, old or new."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slime.data.sample_file import read_samples, write_samples
from slime.samples.sample import Sample

STEPS = 6  # fsync, rename, fsync of the folder; for the arrays and for the JSON


def save(path: Path, number: int) -> None:
    sample = Sample(index=number, prompt="p" * 1000)
    sample.rollout_routed_experts = np.full((100, 100), number, dtype=np.int32)
    write_samples(path, [[sample]], {"number": number})


def check(path: Path) -> int:
    """Everything in the file comes from one and the same save; its number."""
    (group,), header = read_samples(path)
    assert group[0].index == header["number"]
    np.testing.assert_array_equal(group[0].rollout_routed_experts, header["number"])
    return int(header["number"])


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked process that never comes back into pytest."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("step", range(STEPS))
def test_killed_at_every_step(tmp_path: Path, step: int, before: bool) -> None:
    path = tmp_path / "state.json"
    save(path, 1)
    calls = iter(range(100))

    def killing(function: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object) -> None:
            number = next(calls)
            if before and number == step:
                os.kill(os.getpid(), signal.SIGKILL)
            function(*args)
            if number == step:
                os.kill(os.getpid(), signal.SIGKILL)

        return call

    def work() -> None:
        os.fsync, os.replace = killing(os.fsync), killing(os.replace)
        save(path, 2)

    _, status = os.waitpid(in_child(work), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    renamed = step > 4 or (step == 4 and not before)
    assert check(path) == (2 if renamed else 1)
    save(path, 3)  # what the dead writer left behind is in nobody's way
    assert check(path) == 3


def test_killed_at_random_moments(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save(path, 0)
    draw = random.Random(0)
    last = 0
    for _ in range(10):

        def work(start: int = last) -> None:
            for number in range(start + 1, start + 10_000):
                save(path, number)

        child = in_child(work)
        time.sleep(draw.uniform(0.005, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        last = check(path)
    assert last > 0
