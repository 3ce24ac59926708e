"""One engine of a run: where it is, what state it is in, and its process if we started it."""

import enum
from collections.abc import Sequence

import requests

from slime.arguments.topology import EnginePlan
from slime.engines.host import Host
from slime.engines.server import Server

_ANSWER_SECONDS = 2.0
_GENERATE_SECONDS = 10.0


class State(enum.Enum):
    """Only an engine in service gets requests."""

    STARTING = "starts"
    WAITING = "waits for weights"
    SERVING = "serves"
    ENDED = "has ended"


class Engine(Server):
    """See the module. `url` is set by `start`, or is that of an engine that runs already.

    Attributes:
        starts: How often it was started.
        trained: Whether it gets the trainer's weights.
        node: Ray's id of its machine; empty if it is not known.
    """

    def __init__(
        self,
        plan: EnginePlan,
        trained: bool,
        host: Host | None,
        gpu_ids: Sequence[int] = (),
        encoders: Sequence["Engine"] = (),
    ) -> None:
        """`host` starts it (None: it runs already); `encoders` encode media for it."""
        super().__init__(f"engine {plan.index}", plan.address)
        self.plan, self.trained = plan, trained
        self.state = State.STARTING
        self.starts = 0
        self.node = host.node if host is not None else ""
        self._host, self._gpu_ids, self._encoders = host, list(gpu_ids), list(encoders)

    def choose_port(self) -> None:
        """Set `url` to where it will be started."""
        assert self._host is not None, "an engine of somebody else"
        (port,) = self._host.free_ports(1)
        self.url = f"http://{self._host.address}:{port}"

    def start(self) -> None:
        """Start its process at `url`.

        Raises:
            EngineDied: its machine is gone.
        """
        assert self._host is not None, "an engine of somebody else"
        self.forget_failure()
        self.state, self.starts = State.STARTING, self.starts + 1
        port = int(self.url.rsplit(":", 1)[1])
        encoder_urls = [encoder.url for encoder in self._encoders]
        self.process = self._host.start(self.plan, port, encoder_urls, self._gpu_ids)

    @property
    def health_url(self) -> str:
        """Answers 200 when all its processes are well: generates a token where nothing else is."""
        return f"{self.url}/health_generate"

    def report(self, reason: str) -> None:
        """A check of engines in service found that it does not work.

        A check that began before it was started again may come late; it says nothing any more.
        """
        if self.state is State.SERVING:
            self.fail(reason)

    def fail(self, reason: str) -> None:
        """It cannot be used as it is."""
        self._failure = self._failure or f"{self.name} {reason}\n{self.log_tail()}"

    def answers(self) -> bool:
        """Whether it is up."""
        return _is_ok(f"{self.url}/health", _ANSWER_SECONDS)

    def generates(self) -> bool:
        """Whether all of it works: `/health` alone does not notice a frozen scheduler."""
        return _is_ok(self.health_url, _GENERATE_SECONDS)


def _is_ok(url: str, timeout: float) -> bool:
    try:
        with requests.Session() as session:
            session.trust_env = False  # a proxy must not see loopback traffic
            return session.get(url, timeout=timeout).ok
    except requests.RequestException:
        return False
