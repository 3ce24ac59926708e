"""From started processes to engines behind their routers: waiting, and starting again what lost the
race for its port."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from slime.engines import ports
from slime.engines.errors import EngineDied
from slime.engines.host import Process

if TYPE_CHECKING:
    from slime.engines.servers import RolloutServers

STARTUP_SECONDS = {"cpu": 600.0, "cuda": 1800.0}
_POLL_SECONDS = 0.1
_PROGRESS_SECONDS = 2.0
_PORT_ATTEMPTS = 4


class StartUp:
    """One start of `servers`."""

    def __init__(self, servers: "RolloutServers", progress: Callable[[str], None]) -> None:
        self._servers, self._progress = servers, progress
        self._started = time.monotonic()
        self._attempts = 1

    def run(self) -> None:
        """Return when the routers send requests to every engine.

        Raises:
            EngineDied: a server ended or did not get ready in time.
        """
        self._wait_ready()
        for process in self._servers.processes():
            process.note_shared_memory()
        self._register()

    def _wait_ready(self) -> None:
        servers = self._servers
        reported = self._started
        while True:
            self._restart_where_port_taken()
            servers.check()
            ready = [engine.answers() for engine in servers.engines]
            if all(ready) and all(router.answers() for router in servers.routers):
                return
            now = time.monotonic()
            if now - reported >= _PROGRESS_SECONDS:
                reported = now
                for process in servers.processes():
                    process.note_shared_memory()
                self._progress(f"engines ready: {sum(ready)} of {len(ready)} ({self._seconds()})")
            self._check_time("become ready")
            time.sleep(_POLL_SECONDS)

    def _restart_where_port_taken(self) -> None:
        servers = self._servers
        for server in [*servers.engines, *servers.routers]:
            # SGLang may stay alive after it failed to bind, so being alive proves nothing.
            if self._attempts >= _PORT_ATTEMPTS or not _lost_port(server.process):
                continue
            assert server.process is not None
            server.process.kill(0.0)
            server.process.set_log_aside(f".attempt{self._attempts}.log")
            self._attempts += 1
            servers.move(server)

    def _register(self) -> None:
        servers = self._servers
        behind: dict[str, set[str]] = {}
        for router in servers.routers:
            served = [e for e in servers.engines if router.is_for(e.plan)]
            for engine in served:
                router.add(engine.url, engine.plan)
            behind[router.name] = {engine.url for engine in served}
        while not all(router.healthy() >= behind[router.name] for router in servers.routers):
            servers.check()
            self._check_time("be accepted by the router")
            time.sleep(_POLL_SECONDS)
        count = sum(map(len, behind.values()))
        place = "the router" if len(behind) == 1 else f"{len(behind)} routers"
        self._progress(f"engines ready: {count} of {count} behind {place} ({self._seconds()})")

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._started:.0f} s"

    def _check_time(self, what: str) -> None:
        limit = STARTUP_SECONDS[self._servers.args.device]
        if time.monotonic() - self._started > limit:
            tails = "\n".join(process.log_tail() for process in self._servers.processes())
            raise EngineDied(f"the engines did not {what} within {limit:.0f} s\n{tails}")


def _lost_port(process: Process | None) -> bool:
    return process is not None and ports.says_port_taken(process.log_tail(lines=200))
