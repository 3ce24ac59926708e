"""Computer algebra in other processes: right, bounded, and from any thread."""

import asyncio
import os
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from benchmarks.answer_pairs import HOSTILE, handmade
from slime.rewards.comparison import compare
from slime.rewards.dispatch import async_rm
from slime.rewards.math_answers import grade_answer
from slime.rewards.symbolic_pool import Limits, SymbolicPool, is_equal
from slime.samples.sample import Sample

INTEGRAL = ("\\int_0^1 x\\,dx", "\\frac12")
ENDLESS = ("\\prod_{k=1}^{10^{9}} k", "x+1")


@pytest.fixture(scope="module")
def pool() -> Iterator[SymbolicPool]:
    pool = SymbolicPool(1)
    yield pool
    pool.close()


def children() -> set[str]:
    """Command lines of this process's children that still run."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return set(file.read().split())


@pytest.mark.parametrize(
    ("answer", "truth", "equal"),
    [pair for pair in handmade() if compare(pair[0], pair[1]) is None],
)
def test_what_exact_comparison_leaves_open(
    pool: SymbolicPool, answer: str, truth: str, equal: bool
) -> None:
    assert pool.is_equal(answer, truth) is equal


def test_a_limit_of_time_ends_the_answer_and_the_next_one_is_right() -> None:
    pool = SymbolicPool(1, Limits(cpu_seconds=0.5))
    started = time.monotonic()
    assert pool.is_equal(*ENDLESS) is False
    assert pool.num_ended == 1
    assert time.monotonic() - started < 100
    assert pool.is_equal(*INTEGRAL) is True
    assert (pool.num_asked, pool.num_ended) == (2, 1)
    pool.close()


def memory_kilobytes(pid: str, name: str) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith(name)).split()[1])


def test_memory_stays_below_the_limit_and_the_next_answer_is_right() -> None:
    """7^(7^8) has two megabytes, and computing it needs a multiple of that."""
    before = children()
    pool = SymbolicPool(1, Limits(cpu_seconds=20, wall_seconds=200, memory_bytes=4 << 20))
    assert pool.is_equal(*INTEGRAL) is True
    (pid,) = children() - before
    started = memory_kilobytes(pid, "VmSize")
    assert pool.is_equal("\\lfloor 7^{7^{8}} \\rfloor", "1") is False
    assert memory_kilobytes(pid, "VmPeak") <= started + 4096
    assert pool.is_equal(*INTEGRAL) is True
    pool.close()


def test_two_hundred_queued_answers_give_no_false_zeros() -> None:
    """The clock starts with the work: the queue alone takes longer than one answer may."""
    pool = SymbolicPool(1, Limits(cpu_seconds=1))
    pairs = [(f"\\int_0^1 {n} dx", f"\\lfloor {n}.5 \\rfloor") for n in range(200)]
    with ThreadPoolExecutor(50) as threads:
        assert list(threads.map(lambda pair: pool.is_equal(*pair), pairs)) == [True] * 200
    pool.close()


def test_threads_get_the_verdicts_of_the_main_thread() -> None:
    pairs = [INTEGRAL, ("\\tan^{-1} 1", "\\frac{\\pi}{4}"), ("x > 3", "x \\ge 3")]
    here = [grade_answer(*pair) for pair in pairs]
    is_equal.cache_clear()
    there: list[bool] = []
    thread = threading.Thread(target=lambda: there.extend(grade_answer(*pair) for pair in pairs))
    thread.start()
    thread.join(200)
    assert there == here == [True, True, False]


def test_the_event_loop_stays_free_while_a_grader_waits() -> None:
    """Algebra up to the limit in a worker: the loop ticks on."""

    async def run() -> tuple[Any, int]:
        args = Namespace(rm_type="math", custom_rm_path=None, rm_url=None)
        hard = Sample(response=f"\\boxed{{{ENDLESS[0]}}}", label=ENDLESS[1])
        grading = asyncio.create_task(async_rm(args, hard))
        ticks = 0
        while not grading.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return grading.result(), ticks

    reward, ticks = asyncio.run(run())
    assert reward == 0 and ticks > 20


def test_nothing_hostile_is_right_or_raises(pool: SymbolicPool) -> None:
    quick = [answer for answer in HOSTILE if "\\sum" not in answer and "\\int" not in answer]
    for answer in quick[:10]:
        assert pool.is_equal(answer, "5/7") is False
        assert grade_answer(answer, "5/7") is False
    assert pool.is_equal(*INTEGRAL) is True


def test_text_is_never_run_as_python(pool: SymbolicPool, tmp_path: os.PathLike) -> None:
    target = os.path.join(tmp_path, "made")
    for text in (f"open('{target}','w')", f"\\text{{open('{target}','w')}}", f"x+open('{target}')"):
        assert pool.is_equal(text, "1") is False
    assert not os.path.exists(target)


def test_closing_leaves_no_process_behind() -> None:
    before = children()
    pool = SymbolicPool(1)
    assert pool.is_equal(*INTEGRAL) is True
    pool.close()
    assert children() == before
    assert pool.is_equal(*INTEGRAL) is False


def test_without_a_worker_nothing_is_equal_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    pool = SymbolicPool(1)
    assert pool.is_equal(*INTEGRAL) is False and pool.is_equal(*INTEGRAL) is False
    assert [record.message for record in caplog.records if "math-verify" in record.message] != []
    assert len(caplog.records) == 1
