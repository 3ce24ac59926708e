"""One engine of a run: where it is, what state it is in, and its process if we started it."""

import enum
from collections.abc import Sequence

import requests

from slime.arguments.topology import EnginePlan
from slime.engines.errors import EngineDied
from slime.engines.host import Host, Process
from slime.engines.node_processes import NodeProcesses
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
        node: Ray's id of its machine; empty if it is not known, or one of several.
    """

    def __init__(
        self,
        plan: EnginePlan,
        trained: bool,
        hosts: Sequence[Host] = (),
        gpu_ids: Sequence[int] = (),
        encoders: Sequence["Engine"] = (),
    ) -> None:
        """`hosts` start it, one for each of its machines (none: it runs already). `gpu_ids` are its
        devices on all of them, `encoders` encode media for it."""
        super().__init__(f"engine {plan.index}", plan.address)
        self.plan, self.trained = plan, trained
        self.state = State.STARTING
        self.starts = 0
        nodes = {host.node for host in hosts}
        self.node = nodes.pop() if len(nodes) == 1 else ""
        self._hosts, self._gpu_ids, self._encoders = list(hosts), list(gpu_ids), list(encoders)
        self._ports: list[int] = []

    def choose_port(self) -> None:
        """Set `url` to where it will be started."""
        assert self._hosts, "an engine of somebody else"
        self._ports = [port for host in self._hosts for port in host.free_ports(1)]
        self.url = f"http://{self._hosts[0].address}:{self._ports[0]}"

    def start(self) -> None:
        """Start it at `url`: a process on each of its machines.

        Raises:
            EngineDied: a machine is gone.
        """
        assert self._hosts, "an engine of somebody else"
        self.forget_failure()
        self.state, self.starts = State.STARTING, self.starts + 1
        encoder_urls = [encoder.url for encoder in self._encoders]
        first, meet_at = self._hosts[0], ""
        if len(self._hosts) > 1:  # anew at each start: the last one's port may not be free yet
            meet_at = f"{first.address}:{first.meeting_port()}"
        size = self.plan.gpus_per_node
        parts: list[Process] = []
        try:
            for rank, host in enumerate(self._hosts):
                gpu_ids = self._gpu_ids[rank * size : (rank + 1) * size]
                port = self._ports[rank]
                parts.append(host.start(self.plan, port, encoder_urls, gpu_ids, rank, meet_at))
        except EngineDied:  # the others would wait for that machine
            for part in parts:
                part.kill(0.0)
            raise
        self.process = parts[0] if len(parts) == 1 else NodeProcesses(parts)

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
