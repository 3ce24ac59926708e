"""Whether servers still answer: a frozen one is alive, and keeps its connections open for ever."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import requests

from slime.engines.errors import EngineDied

_FAILURES = 3  # in a row: one long forward pass or one compilation is no death


@dataclass
class _Target:
    url: str
    log_tail: Callable[[], str]
    probe: Future[str] | None = None
    started: float = float("-inf")
    failures: int = 0


class HealthProbes:
    """Asks servers in the background, and only while somebody calls `check`: nothing is asked of an
    idle engine, nor during a weight update."""

    def __init__(
        self,
        targets: Mapping[str, tuple[str, Callable[[], str]]],
        interval: float,
        timeout: float,
    ) -> None:
        """`targets`: by name the address that answers 200 when all is well, and what gives the end
        of the server's log. `interval` between the starts of two probes and `timeout` of one are
        seconds."""
        self._targets = {name: _Target(*target) for name, target in targets.items()}
        self._interval, self._timeout = interval, timeout
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max(1, len(targets)), thread_name_prefix="health-probe")

    def check(self) -> None:
        """Take the results that are there and start the probes that are due; returns at once.

        Raises:
            EngineDied: a server failed three probes in a row.
        """
        with self._lock:
            for name, target in self._targets.items():
                self._take_result(name, target)
                now = time.monotonic()
                if target.probe is None and now - target.started >= self._interval:
                    target.started = now
                    target.probe = self._pool.submit(self._ask, target.url)

    def stop(self) -> None:
        """No more probes; one that is under way ends by its timeout."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take_result(self, name: str, target: _Target) -> None:
        if target.probe is None or not target.probe.done():
            return
        reason, target.probe = target.probe.result(), None
        target.failures = target.failures + 1 if reason else 0
        if target.failures >= _FAILURES:
            raise EngineDied(
                f"{name} runs but does not respond: {target.failures} health checks in a row "
                f"failed, the last with {reason}\n{target.log_tail()}"
            )

    def _ask(self, url: str) -> str:
        """Why the server is not well; empty if it is."""
        with requests.Session() as session:
            session.trust_env = False  # a proxy from the environment must not see loopback traffic
            try:
                answer = session.get(url, timeout=self._timeout)
            except requests.RequestException as error:
                return f"{type(error).__name__} after at most {self._timeout:g} s"
            return "" if answer.ok else f"HTTP {answer.status_code}"
