"""Keeps engines and routers in service (`--use-fault-tolerance`): what ended or stopped answering
is restarted in its place, and gets requests again only with the current weights."""

import threading
import time
from collections.abc import Callable, Sequence

import requests

from slime.engines.engine import Engine, State
from slime.engines.errors import EngineDied
from slime.engines.router import Router

_POLL_SECONDS = 0.5
_MAX_STARTS = 20  # of one engine in a run: more means that something is wrong with all of it
_ADMIT_SECONDS = 30.0


class Keeper:
    """Owns the states of the engines from the moment all of them serve.

    `restart_router` starts a new process in the place of a router's old one.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        routers: Sequence[Router],
        restart_router: Callable[[Router], None],
        startup_seconds: float,
        log: Callable[[str], None],
    ) -> None:
        self._engines, self._routers = list(engines), list(routers)
        self._router_of = {
            engine.name: next(router for router in routers if router.model == engine.plan.model)
            for engine in engines
        }
        self._restart_router = restart_router
        self._startup_seconds, self._log = startup_seconds, log
        self._lock = threading.RLock()
        self._since: dict[str, float] = {}
        self._stopped = threading.Event()
        self._error: EngineDied | None = None
        self._thread = threading.Thread(target=self._run, name="engine-keeper", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Let everything be."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> bool:
        """Whether something is being repaired. Does not block.

        Raises:
            EngineDied: it cannot be repaired.
        """
        if self._error is not None:
            raise self._error
        return any(engine.state is not State.SERVING for engine in self._engines) or any(
            router.failure() for router in self._routers
        )

    def in_service(self) -> list[Engine | Router]:
        """What the health monitor asks."""
        serving = [engine for engine in self._engines if engine.state is State.SERVING]
        return [*serving, *(router for router in self._routers if not router.failure())]

    def updatable(self) -> list[Engine]:
        """Engines of the trained model that can take weights now."""
        with self._lock:
            usable = (State.SERVING, State.WAITING)
            return [e for e in self._engines if e.trained and e.state in usable]

    def waiting(self) -> list[Engine]:
        """Engines that need the present weights before they can serve."""
        with self._lock:
            return [e for e in self._engines if e.trained and e.state is State.WAITING]

    def updated(self, urls: Sequence[str], left_behind: dict[str, str]) -> None:
        """An update reached the engines `urls`, but for those left behind: these serve no more."""
        with self._lock:
            for engine in self._engines:
                if engine.url in left_behind and engine.state is not State.STARTING:
                    self._log(f"{engine.name} {left_behind[engine.url]}: it waits for weights")
                    self._take_out(engine)
                    engine.state = State.WAITING
                    if not engine.generates():
                        engine.fail(left_behind[engine.url])
                elif engine.url in urls and engine.state is State.WAITING:
                    self._admit(engine)

    def step(self) -> None:
        """Look at everything once, and repair what needs it."""
        with self._lock:
            for router in self._routers:
                if reason := router.failure():
                    self._log(f"{router.name} is started again: {reason}")
                    router.report("is started again")  # not in service before it has its engines
                    self._restart_router(router)
                    self._refill(router)
                    router.forget_failure()
            for engine in self._engines:
                if reason := engine.failure():
                    self._replace(engine, reason)
                elif engine.state is State.STARTING:
                    self._continue_start(engine)

    def _run(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            try:
                self.step()
            except EngineDied as error:
                self._error = error
                return
            except (requests.RequestException, TimeoutError) as error:
                self._log(f"will try again: {error}")

    def _replace(self, engine: Engine, reason: str) -> None:
        if engine.process is None:
            raise EngineDied(f"{reason}\nit is not ours to restart")
        if engine.starts >= _MAX_STARTS:
            raise EngineDied(f"{engine.name} was started {engine.starts} times\n{reason}")
        self._log(f"{engine.name} is started again: {reason}")
        self._take_out(engine)
        engine.state = State.ENDED
        engine.process.kill(0.0)
        engine.start()
        self._since[engine.name] = time.monotonic()

    def _continue_start(self, engine: Engine) -> None:
        if engine.answers():
            if engine.process is not None:
                engine.process.note_shared_memory()
            engine.state = State.WAITING
            if not engine.trained:
                self._admit(engine)
        elif time.monotonic() - self._since[engine.name] > self._startup_seconds:
            engine.fail(f"did not become ready within {self._startup_seconds:.0f} s")

    def _admit(self, engine: Engine) -> None:
        router = self._router_of[engine.name]
        if router.is_for(engine.plan):
            router.add(engine.url, engine.plan)
            deadline = time.monotonic() + _ADMIT_SECONDS
            while engine.url not in router.healthy():
                if time.monotonic() > deadline or engine.failure():
                    engine.fail("was not accepted by the router")
                    return
                time.sleep(0.05)
        engine.state = State.SERVING
        self._log(f"{engine.name} serves again")

    def _take_out(self, engine: Engine) -> None:
        """Its router must not find it healthy before it has the present weights."""
        router = self._router_of[engine.name]
        try:
            router.remove(engine.url)
        except (requests.RequestException, TimeoutError) as error:
            router.report(f"does not let go of {engine.name}: {error}")  # it is replaced next

    def _refill(self, router: Router) -> None:
        deadline = time.monotonic() + _ADMIT_SECONDS
        while not router.answers() and time.monotonic() < deadline:
            time.sleep(0.1)
        for engine in self._engines:
            if engine.state is State.SERVING and router.is_for(engine.plan):
                router.add(engine.url, engine.plan)
