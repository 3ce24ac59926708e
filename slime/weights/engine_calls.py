"""Requests to several engines at once. One that fails is left out of the requests that follow."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
import requests

from slime.weights import connections

_SHOWN = 500
_UNREACHABLE_SECONDS = 30.0


@dataclass(frozen=True)
class EngineAddress:
    """Where an engine is.

    Attributes:
        url: Of its HTTP server.
        num_gpus: Its ranks; each takes its own part of a tensor.
        node: Ray's id of its node; empty if it is not known.
        takes_memory: It was started with our loader, which reads the memory of a neighbour process.
        starts: How often it was started at its address: another one knows nothing of the last.
    """

    url: str
    num_gpus: int = 1
    node: str = ""
    takes_memory: bool = False
    starts: int = 0


class Refused(OSError):
    """An answer that is not what was asked for; `status` is that of HTTP."""

    def __init__(self, path: str, status: int, text: str) -> None:
        super().__init__(f"refused {path}: {text[:_SHOWN]}")
        self.status = status


class EngineCalls:
    """One update's requests. `failed` says by address why an engine is out of it."""

    def __init__(
        self,
        engines: Sequence[EngineAddress],
        timeout: float,
        unreachable: float = _UNREACHABLE_SECONDS,
    ) -> None:
        """`timeout`: seconds for one request; `unreachable`: for an engine's machine to acknowledge
        what was sent to it, whether or not the engine answers."""
        self.failed: dict[str, str] = {}
        self._engines = list(engines)
        self._timeout = timeout
        self._pool = ThreadPoolExecutor(max(1, len(engines)), thread_name_prefix="weight-update")
        self._sessions = {engine.url: connections.session(unreachable) for engine in engines}

    @property
    def engines(self) -> list[EngineAddress]:
        """Those that have answered every request so far."""
        return [engine for engine in self._engines if engine.url not in self.failed]

    def post(self, path: str, body: dict[str, Any]) -> None:
        """The same request to all; returns when all have answered."""
        payload = orjson.dumps(body)
        self.each(lambda engine: self.request(engine.url, "POST", path, payload))

    def post_each(self, path: str, bodies: Mapping[str, dict[str, Any]]) -> None:
        """A request of its own (by address) to every engine, all at the same time."""
        self.start(path, bodies)()

    def get(self, path: str) -> dict[str, Any]:
        """The answers by address."""
        return self.each(lambda engine: self.request(engine.url, "GET", path, None))

    def each(self, call: Callable[[EngineAddress], Any]) -> dict[str, Any]:
        """`call` for every engine in parallel; the results by address. An `OSError` or `ValueError`
        of a call is that engine's failure."""
        answers: dict[str, Any] = {}
        futures = {engine.url: self._pool.submit(call, engine) for engine in self.engines}
        self._collect(futures, answers)
        return answers

    def _collect(
        self, futures: Mapping[str, Future[Any]], answers: dict[str, Any] | None = None
    ) -> None:
        for url, future in futures.items():
            try:
                answer = future.result()
            except (OSError, ValueError) as error:  # those of requests are OSErrors
                self.failed.setdefault(url, str(error))
                continue
            if answers is not None:
                answers[url] = answer

    def start(self, path: str, bodies: Mapping[str, dict[str, Any]]) -> Callable[[], None]:
        """As `post_each`, but returns at once; call the result to wait for the answers."""
        waiting = {
            engine.url: self._pool.submit(
                self.request, engine.url, "POST", path, orjson.dumps(bodies[engine.url])
            )
            for engine in self.engines
        }
        return lambda: self._collect(waiting)

    def request(self, url: str, method: str, path: str, payload: bytes | None) -> Any:
        """One answer, as JSON.

        Raises:
            OSError: no answer, or a refusal (`Refused`); says which request.
        """
        try:
            response = self._sessions[url].request(
                method,
                url + path,
                data=payload,
                headers={"Content-Type": "application/json"},
                timeout=self._timeout,
            )
        except requests.RequestException as error:
            raise OSError(f"did not answer {path}: {error}") from error
        answer = response.json() if response.content else {}
        if not response.ok or (isinstance(answer, dict) and answer.get("success") is False):
            raise Refused(path, response.status_code, response.text)
        return answer

    def close(self) -> None:
        """End the connections and threads."""
        self._pool.shutdown(wait=False)
        for session in self._sessions.values():
            session.close()
