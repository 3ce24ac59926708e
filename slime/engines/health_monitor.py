"""The health monitor: asks engines in service at an interval whether they still answer.

Documented as it is coded: the first check comes `--rollout-health-check-first-wait` seconds after
the start (and after each `resume`), the next ones every `--rollout-health-check-interval` seconds.
An engine that gives no good answer within `--rollout-health-check-timeout` seconds is reported as
failed; whoever owns the engines restarts it.

A failed check says nothing, and the next one decides, if a pause or a restart came in between or
the clock was set: SGLang compares times of the wall clock to see whether its processes answer, so
setting it back spoils the check under way.
"""

import threading
import time
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import requests

_CLOCK_STEP_SECONDS = 0.1  # more than clocks drift apart in one check


class Monitored(Protocol):
    """An engine (or a router) as the monitor sees it."""

    @property
    def process(self) -> object:
        """Another one after a restart."""

    @property
    def health_url(self) -> str:
        """Answers 200 when all is well."""

    def report(self, reason: str) -> None:
        """It does not work."""


class MonitoredGroup(Protocol):
    """What has engines."""

    def in_service(self) -> Sequence[Monitored]:
        """Those to ask now."""


class RolloutHealthMonitor:
    """Checks the engines of `server_group` in a thread of its own."""

    def __init__(self, server_group: MonitoredGroup, args: Namespace) -> None:
        self._group = server_group
        self._interval = float(args.rollout_health_check_interval)
        self._timeout = float(args.rollout_health_check_timeout)
        self._first_wait = float(args.rollout_health_check_first_wait)
        self._changed = threading.Condition()
        self._running = self._enabled = False
        self._began = 0  # counts resumes, so that a wait notices a pause that is already over
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Begin; False if it runs already."""
        with self._changed:
            if self._running:
                return False
            self._running = self._enabled = True
            self._began += 1
        self._thread = threading.Thread(target=self._run, name="health-monitor", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        """End; a check under way is not waited for."""
        with self._changed:
            self._running = self._enabled = False
            self._changed.notify_all()

    def pause(self) -> None:
        """No checks until `resume`: engines that load weights or are offloaded cannot answer."""
        with self._changed:
            self._enabled = False
            self._changed.notify_all()

    def resume(self) -> None:
        """Check again, after the first wait."""
        with self._changed:
            self._enabled = self._running
            self._began += 1
            self._changed.notify_all()

    def is_checking_enabled(self) -> bool:
        """Whether it runs and is not paused."""
        with self._changed:
            return self._enabled

    def _run(self) -> None:
        while self._wait_until_enabled():
            began, wait = self._began, self._first_wait
            while self._sleep(wait, began):
                self._check(began)
                wait = self._interval

    def _wait_until_enabled(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._enabled or not self._running)
            return self._running

    def _sleep(self, seconds: float, began: int) -> bool:
        """Whether checking is still enabled afterwards, without a pause in between."""
        with self._changed:
            self._changed.wait_for(lambda: not self._enabled or self._began != began, seconds)
            return self._enabled and self._began == began

    def _check(self, began: int) -> None:
        engines = list(self._group.in_service())
        if not engines:
            return
        processes, clock = [engine.process for engine in engines], _clock_offset()
        with ThreadPoolExecutor(len(engines), thread_name_prefix="health-check") as pool:
            reasons = list(pool.map(self._ask, engines))
        with self._changed:
            current = self._enabled and self._began == began
        if not current or abs(_clock_offset() - clock) > _CLOCK_STEP_SECONDS:
            return
        for engine, process, reason in zip(engines, processes, reasons, strict=True):
            if reason and engine.process is process:
                engine.report(f"runs but does not respond: {reason}")

    def _ask(self, engine: Monitored) -> str:
        """Why the engine is not well; empty if it is."""
        with requests.Session() as session:
            session.trust_env = False  # a proxy from the environment must not see loopback traffic
            try:
                answer = session.get(engine.health_url, timeout=self._timeout)
            except requests.RequestException as error:
                return f"{type(error).__name__} after at most {self._timeout:g} s"
            return "" if answer.ok else f"HTTP {answer.status_code}"


def _clock_offset() -> float:
    return time.time() - time.monotonic()
