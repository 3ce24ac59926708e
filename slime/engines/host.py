"""Starts the engines of one machine, for a manager on this machine or on another."""

import os
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from slime.arguments.topology import EnginePlan
from slime.engines import command, ports
from slime.engines.process import ServerProcess

_LONGEST_TEMP_PATH = 50
# The ranks of an engine over several machines meet at one port; with attention divided by data,
# SGLang takes those after it as well.
_MEETING_PORTS = 7


def process_name(plan: EnginePlan, node_rank: int) -> str:
    """How messages and logs call an engine, and its processes on further machines."""
    return f"engine {plan.index}" + (f" node {node_rank}" if node_rank else "")


class Process(Protocol):
    """What can be asked of a server process, here or on another machine."""

    pid: int
    log: Path

    def is_alive(self) -> bool:
        """Whether the server itself still runs."""

    def check(self) -> None:
        """Raise `EngineDied` if it ended or is frozen."""

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of its log."""

    def set_log_aside(self, suffix: str) -> None:
        """Give the log another ending; the next process writes to a new one."""

    def note_shared_memory(self) -> None:
        """Remember its shared memory."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self, patience: float) -> None:
        """Wait so many seconds, then end it by force."""


class Host(Protocol):
    """A machine for engines. `address` is where they listen, `node` Ray's id of it (or empty)."""

    address: str
    node: str

    def free_ports(self, count: int) -> list[int]:
        """Ports of the machine that were free a moment ago."""

    def meeting_port(self) -> int:
        """A free port where the ranks of an engine over several machines can meet."""

    def start(
        self,
        plan: EnginePlan,
        port: int,
        encoder_urls: Sequence[str],
        gpu_ids: Sequence[int],
        node_rank: int = 0,
        meet_at: str = "",
    ) -> Process:
        """Start an engine, or what runs of it on its machine number `node_rank`."""

    def stop(self) -> None:
        """Give back what is left when all servers have ended. May be called twice."""


class EngineHost:
    """The engines of one machine; all are children of this process.

    Attributes:
        address: Where they listen.
        node: Ray's id of the machine; empty if it is not known.
    """

    def __init__(
        self, args: Namespace, logs: Path, address: str = command.LOOPBACK, node: str = ""
    ) -> None:
        self.address, self.node = address, node
        self._args, self._logs = args, logs
        self._processes: dict[str, ServerProcess] = {}
        # Children die with the thread that started them, so that thread must live as long as this
        # object.
        self._spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine-spawner")
        self._scratch = _short_scratch()

    def free_ports(self, count: int, preferred: int | None = None) -> list[int]:
        """Ports of this machine that were free a moment ago."""
        return ports.free_ports(count, self.address, preferred)

    def meeting_port(self) -> int:
        """A free port where the ranks of an engine over several machines can meet."""
        return ports.free_run(_MEETING_PORTS, self.address)

    def start(
        self,
        plan: EnginePlan,
        port: int,
        encoder_urls: Sequence[str],
        gpu_ids: Sequence[int],
        node_rank: int = 0,
        meet_at: str = "",
    ) -> Process:
        """Start an engine, or its part on machine `node_rank`; what it is asked afterwards goes to
        the result."""
        scratch = Path(tempfile.mkdtemp(dir=self._scratch.name))
        words = command.engine_command(
            self._args, plan, port, encoder_urls, self.address, node_rank, meet_at
        )
        interface = ports.interface_of(self.address)
        environment = command.engine_environment(
            self._args, plan, os.environ, scratch, gpu_ids, self.address, interface
        )
        return self._start(process_name(plan, node_rank), words, environment)

    def run(self, name: str, words: list[str]) -> Process:
        """Start another server (a router) on this machine."""
        return self._start(name, words, command.server_environment(os.environ))

    def _start(self, name: str, words: list[str], environment: dict[str, str]) -> Process:
        process = ServerProcess(
            name,
            words,
            environment,
            self._logs / f"{name.replace(' ', '_')}.log",
            self._spawner,
            self._args.rollout_health_check_timeout,
        )
        self._processes[name] = process
        return process

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of a server's process, for a manager on another machine."""
        return getattr(self._processes[name], method)(*arguments)

    def stop(self) -> None:
        """Give back what is left when all servers have ended. May be called twice."""
        self._spawner.shutdown()
        self._scratch.cleanup()


def _short_scratch() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder whose path leaves room for the names of sockets (107 bytes in all)."""
    short = len(tempfile.gettempdir()) <= _LONGEST_TEMP_PATH
    return tempfile.TemporaryDirectory(prefix="slime-engines-", dir=None if short else "/tmp")
