"""One engine of a run: where it is, what state it is in, and its process if we started it."""

import enum
import os
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

import requests

from slime.arguments.topology import EnginePlan
from slime.engines import command
from slime.engines.errors import EngineDied
from slime.engines.process import ServerProcess

_ANSWER_SECONDS = 2.0


class State(enum.Enum):
    """Only an engine in service gets requests."""

    STARTING = "starts"
    WAITING = "waits for weights"
    SERVING = "serves"
    ENDED = "has ended"


@dataclass
class Place:
    """What the engines of a run share: the arguments, and where their files go."""

    args: Namespace
    logs: Path
    scratch: Path
    spawner: Executor
    gpu_ids: Sequence[int] = ()
    urls: dict[int, str] = field(default_factory=dict)


class Engine:
    """See the module. `url` is set by `start`, or is that of an engine that runs already.

    Attributes:
        starts: How often it was started.
        trained: Whether it gets the trainer's weights.
    """

    def __init__(
        self, plan: EnginePlan, trained: bool, place: Place, encoders: Sequence[int] = ()
    ) -> None:
        self.plan, self.trained = plan, trained
        self.name = f"engine {plan.index}"
        self.url = plan.address
        self.state = State.STARTING
        self.starts = 0
        self._place, self._encoders = place, encoders
        self._process: ServerProcess | None = None
        self._failure = ""

    def start(self, port: int) -> None:
        """Start its process on this port."""
        self._failure = ""
        self.state, self.starts = State.STARTING, self.starts + 1
        self.url = f"http://{command.LOOPBACK}:{port}"
        self._place.urls[self.plan.index] = self.url
        encoder_urls = [self._place.urls[index] for index in self._encoders]
        scratch = Path(tempfile.mkdtemp(dir=self._place.scratch))
        args, first = self._place.args, self.plan.gpu_offset
        gpu_ids = self._place.gpu_ids[first : first + self.plan.num_gpus]
        self._process = ServerProcess(
            self.name,
            command.engine_command(args, self.plan, port, encoder_urls),
            command.engine_environment(args, self.plan, os.environ, scratch, gpu_ids),
            self._place.logs / f"engine_{self.plan.index}.log",
            self._place.spawner,
        )

    @property
    def process(self) -> ServerProcess | None:
        """Its process; None if somebody else started it."""
        return self._process

    @property
    def port(self) -> int:
        """The port of `url`."""
        return int(self.url.rsplit(":", 1)[1])

    @property
    def health_url(self) -> str:
        """Answers 200 when all its processes are well: generates a token where nothing else is."""
        return f"{self.url}/health_generate"

    def failure(self) -> str:
        """Why it cannot be used: how it ended, or what was reported; empty if nothing is known."""
        if self._process is not None:
            try:
                self._process.check()
            except EngineDied as error:
                return str(error)
        return self._failure

    def report(self, reason: str) -> None:
        """A check of engines in service found that it does not work.

        A check that began before it was started again may come late; it says nothing any more.
        """
        if self.state is State.SERVING:
            self.fail(reason)

    def fail(self, reason: str) -> None:
        """It cannot be used as it is."""
        self._failure = self._failure or f"{self.name} {reason}\n{self.log_tail()}"

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of its log."""
        return self._process.log_tail(lines) if self._process else f"(the log is at {self.url})"

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            with requests.Session() as session:
                session.trust_env = False  # a proxy must not see loopback traffic
                return session.get(f"{self.url}/health", timeout=_ANSWER_SECONDS).ok
        except requests.RequestException:
            return False
