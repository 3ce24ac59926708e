"""What a run waits for, and how long its engines are busy; the clock is set by hand."""

import asyncio
import time

import pytest

from slime.rollout import async_loop, progress
from slime.rollout.errors import RolloutError
from slime.rollout.progress import BusyClock, Progress


@pytest.fixture
def clock(monkeypatch):
    """Seconds, as a list of one."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    yield now
    monkeypatch.undo()


def test_who_waits_for_nothing_does_not_hang(clock):
    waits = Progress()
    clock[0] += 1000
    waits.check(timeout=10)
    with waits.waiting_for("a response"):  # the time before it does not count
        waits.check(timeout=10)


def test_a_wait_that_ends_is_progress_of_all(clock):
    waits = Progress()
    with waits.waiting_for("the reward of sample 7"):
        clock[0] += 8
        with waits.waiting_for("a response"):
            clock[0] += 1
        clock[0] += 9
        waits.check(timeout=10)
        clock[0] += 2
        said = r"nothing was finished for 10 s .*: 1 wait, longest \(20 s\) for the reward of"
        with pytest.raises(RolloutError, match=said):
            waits.check(timeout=10)
    waits.check(timeout=10)


def test_overlapping_requests_are_busy_once(clock):
    busy = BusyClock()
    with busy:
        clock[0] += 1
        with busy:
            clock[0] += 2
        clock[0] += 3
        assert busy.seconds == 6
    clock[0] += 10
    assert busy.seconds == 6
    with busy:
        clock[0] += 1
    assert busy.seconds == 7


def test_a_watch_sees_a_loop_that_stands_still(monkeypatch):
    monkeypatch.setattr(async_loop, "_WATCH_SECONDS", 0.05)

    async def block():
        time.sleep(0.5)

    def watch():
        raise RolloutError("it hangs")

    started = time.monotonic()
    with pytest.raises(RolloutError, match="it hangs"):
        async_loop.run(block(), watch=watch)
    assert time.monotonic() - started < 0.4
    async_loop.run(asyncio.sleep(0))


def test_a_timeout_of_the_work_itself_comes_through(monkeypatch):
    monkeypatch.setattr(async_loop, "_WATCH_SECONDS", 0.01)
    seen = []

    async def fail():
        await asyncio.sleep(0.1)
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        async_loop.run(fail(), watch=lambda: seen.append(1))
    assert seen
