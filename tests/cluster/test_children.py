"""A failing actor is named, with cause and log; its siblings are not waited for."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from slime.cluster.children import CONTROL, Child, RunFailed, gather, logged, redirect_output


class Worker:
    def __init__(self, log: str) -> None:
        redirect_output(Path(log))

    def pid(self) -> int:
        return os.getpid()

    def echo(self, value: int, delay: float = 0.0) -> int:
        time.sleep(delay)
        return value

    @logged
    def fail(self) -> None:
        print("about to divide")
        raise ZeroDivisionError("one by zero")


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[Child]]:
    made = []
    for index in range(2):
        log = tmp_path / f"worker_{index}.log"
        remote = ray.remote(concurrency_groups={CONTROL: 1})(Worker)
        handle = remote.options(num_cpus=0).remote(str(log))
        made.append(Child(f"worker {index}", handle, log))
    yield made
    for child in made:
        ray.kill(child.handle)


def test_results_keep_the_order_of_the_calls(workers: list[Child]) -> None:
    calls = [workers[0].call("echo", 1, delay=0.5), workers[1].call("echo", 2)]
    assert gather(calls) == [1, 2]


def test_a_question_does_not_wait_for_a_long_call(workers: list[Child]) -> None:
    gather([workers[0].call("pid")])  # it is up
    long = workers[0].call("echo", 1, delay=10.0)
    started = time.monotonic()
    assert gather([workers[0].ask("echo", 2)]) == [2]
    assert time.monotonic() - started < 8
    assert not ray.wait([long.ref], timeout=0)[0]


def test_an_error_names_the_child_and_shows_its_log(workers: list[Child]) -> None:
    with pytest.raises(RunFailed) as failure:
        gather([workers[0].call("fail")])
    text = str(failure.value)
    assert "worker 0 failed in fail: ZeroDivisionError: one by zero" in text
    assert "about to divide" in text
    assert "Traceback" in text
    assert str(workers[0].log) in text


def test_a_killed_child_is_noticed_while_its_sibling_hangs(workers: list[Child]) -> None:
    (pid,) = gather([workers[1].call("pid")])
    calls = [workers[0].call("echo", 0, delay=60), workers[1].call("echo", 1, delay=60)]
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(RunFailed, match="worker 1 died in echo"):
        gather(calls)
    assert time.monotonic() - started < 20


def test_a_timeout_names_who_did_not_answer(workers: list[Child]) -> None:
    with pytest.raises(TimeoutError, match=r"worker 0\.echo"):
        gather([workers[0].call("echo", 0, delay=30)], timeout=2)


def test_a_call_beside_is_not_waited_for_but_its_failure_counts(workers: list[Child]) -> None:
    slow = workers[0].call("echo", 7, delay=3)
    assert gather([workers[1].call("echo", 1)], beside=[slow]) == [1]
    assert gather([slow], beside=[slow]) == [7]
    wrong = workers[0].call("fail")
    started = time.monotonic()
    with pytest.raises(RunFailed, match="worker 0 failed in fail"):
        gather([workers[1].call("echo", 1, delay=30)], beside=[wrong])
    assert time.monotonic() - started < 20
