"""The health monitor against a real HTTP server: its times are those of the options."""

import time
from argparse import Namespace
from collections.abc import Iterator

import pytest

from slime.engines.health_monitor import RolloutHealthMonitor
from tests.engines.test_health import Server, server

__all__ = ["server"]


class Watched:
    """An engine whose server is in this process."""

    def __init__(self, server: Server) -> None:
        self.health_url = server.url
        self.process = object()
        self.reports: list[str] = []

    def report(self, reason: str) -> None:
        self.reports.append(reason)

    def in_service(self) -> list["Watched"]:
        return [self]


@pytest.fixture
def watched(server: Server) -> Watched:
    return Watched(server)


@pytest.fixture
def monitor(watched: Watched) -> Iterator[RolloutHealthMonitor]:
    monitor = RolloutHealthMonitor(watched, options())
    yield monitor
    monitor.stop()


def options(first: float = 0.0, interval: float = 0.05, timeout: float = 0.1) -> Namespace:
    return Namespace(
        rollout_health_check_first_wait=first,
        rollout_health_check_interval=interval,
        rollout_health_check_timeout=timeout,
    )


def wait_for(condition, seconds: float = 5.0) -> float:
    """Seconds until it holds."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds
        time.sleep(0.005)
    return time.monotonic() - started


def test_a_server_that_hangs_or_is_unwell_is_reported(server, watched, monitor):
    assert monitor.start()
    assert not monitor.start()
    wait_for(lambda: server.asked >= 3)
    assert watched.reports == []
    server.answering.clear()
    wait_for(lambda: watched.reports)
    assert "runs but does not respond: ReadTimeout after at most 0.1 s" in watched.reports[0]
    server.answering.set()
    server.status = 503
    wait_for(lambda: "HTTP 503" in watched.reports[-1])


def test_nothing_is_asked_before_the_first_wait_nor_while_paused(server, watched):
    monitor = RolloutHealthMonitor(watched, options(first=0.4))
    assert not monitor.is_checking_enabled()
    monitor.start()
    assert monitor.is_checking_enabled()
    assert wait_for(lambda: server.asked) >= 0.39
    monitor.pause()
    assert not monitor.is_checking_enabled()
    time.sleep(0.1)  # a check under way may still come through
    asked = server.asked
    time.sleep(0.3)
    assert server.asked == asked
    monitor.resume()
    assert wait_for(lambda: server.asked > asked) >= 0.39  # the first wait again
    monitor.stop()
    assert not monitor.is_checking_enabled()
    assert monitor.start()  # and once more
    monitor.stop()


def test_what_a_pause_interrupts_is_no_failure(server, watched, monitor):
    """An engine that loads weights while it is being asked need not answer."""
    server.answering.clear()
    monitor.start()
    wait_for(lambda: server.asked)
    monitor.pause()
    time.sleep(0.4)
    assert watched.reports == []


def test_what_a_restart_interrupts_is_no_failure_of_the_new_process(server, watched):
    monitor = RolloutHealthMonitor(watched, options(interval=0.6))
    server.answering.clear()
    monitor.start()
    wait_for(lambda: server.asked == 1)
    watched.process = object()
    time.sleep(0.3)  # beyond the check's timeout
    server.answering.set()
    wait_for(lambda: server.asked >= 2)
    assert watched.reports == []
    monitor.stop()


@pytest.mark.parametrize("seconds", [-86400.0, 86400.0])
def test_a_check_in_which_the_clock_was_set_says_nothing_and_the_next_one_decides(
    server, watched, monkeypatch, seconds
):
    """SGLang looks at the wall clock to see whether its processes answer."""
    monitor = RolloutHealthMonitor(watched, options(timeout=0.3))
    server.answering.clear()
    monitor.start()
    wait_for(lambda: server.asked == 1)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)
    wait_for(lambda: server.asked == 2)
    assert watched.reports == []
    wait_for(lambda: watched.reports)
    monitor.stop()
