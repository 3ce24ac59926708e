"""The router in front of a model's engines: one that we started, or somebody else's."""

import time
from typing import Any

import requests

from slime.arguments.topology import DEFAULT_MODEL, EnginePlan
from slime.engines.command import bootstrap_port
from slime.engines.host import Process
from slime.engines.server import Server

_ANSWER_SECONDS = 10.0
_LEAVE_SECONDS = 10.0
_POLL_SECONDS = 0.05


def router_name(model: str) -> str:
    """How messages and logs call the router of a model."""
    return "router" if model == DEFAULT_MODEL else f"router of {model}"


class Router(Server):
    """That of `model`."""

    def __init__(self, model: str, url: str, process: Process | None) -> None:
        super().__init__(router_name(model), url, process)
        self.model = model
        self._http = requests.Session()
        self._http.trust_env = False  # a proxy from the environment must not see loopback traffic

    @property
    def health_url(self) -> str:
        """Answers 200 when all is well."""
        return f"{self.url}/liveness"

    def report(self, reason: str) -> None:
        """Somebody found that it does not work."""
        self._failure = self._failure or f"{self.name} {reason}"

    def answers(self) -> bool:
        """Whether it takes engines."""
        try:
            return self._http.get(f"{self.url}/workers", timeout=2).ok
        except requests.RequestException:
            return False

    def is_for(self, plan: EnginePlan) -> bool:
        """Whether it sends requests to such an engine; encoders are asked by other engines."""
        return plan.model == self.model and plan.worker_type != "encoder"

    def add(self, url: str, plan: EnginePlan) -> None:
        """Send requests to this engine from now on (in about a second).

        Raises:
            requests.RequestException: no answer.
        """
        body: dict[str, Any] = {"url": url}
        if plan.worker_type in ("prefill", "decode"):
            body["worker_type"] = plan.worker_type
        if plan.worker_type == "prefill":
            body["bootstrap_port"] = bootstrap_port(plan)
        self._http.post(f"{self.url}/workers", json=body, timeout=_ANSWER_SECONDS)

    def remove(self, url: str) -> None:
        """No more requests to this engine; returns when it is gone.

        Raises:
            requests.RequestException: no answer.
            TimeoutError: it stays.
        """
        deadline = time.monotonic() + _LEAVE_SECONDS
        while time.monotonic() < deadline:
            ids = [worker["id"] for worker in self._workers() if worker["url"] == url]
            if not ids:
                return
            for worker_id in ids:
                self._http.delete(f"{self.url}/workers/{worker_id}", timeout=_ANSWER_SECONDS)
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"{self.name} keeps {url}")

    def healthy(self) -> set[str]:
        """Addresses of the engines that it sends requests to.

        Raises:
            requests.RequestException: no answer.
        """
        return {worker["url"] for worker in self._workers() if worker["is_healthy"]}

    def _workers(self) -> list[dict[str, Any]]:
        answer = self._http.get(f"{self.url}/workers", timeout=_ANSWER_SECONDS)
        workers: list[dict[str, Any]] = answer.json()["workers"]
        return workers

    def close(self) -> None:
        """End the connections."""
        self._http.close()
