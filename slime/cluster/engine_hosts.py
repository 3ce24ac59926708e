"""Engines on other machines: one actor on each starts them, and the manager asks it about them."""

import contextlib
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from slime.arguments.topology import EnginePlan
from slime.cluster.children import redirect_output
from slime.cluster.placement import Node
from slime.engines.errors import EngineDied
from slime.engines.host import EngineHost, Host, Process, process_name


class HostActor(EngineHost):
    """`EngineHost` as a Ray actor on its machine."""

    def __init__(self, args: Namespace, logs: str, node: Node) -> None:
        redirect_output(Path(logs) / f"engine_host_{node.address}.log")
        super().__init__(args, Path(logs), node.address, node.id)

    def start_remotely(self, *arguments: Any) -> tuple[int, Path]:
        """`start`, for a caller elsewhere: the pid and the log of the process."""
        process = self.start(*arguments)
        return process.pid, process.log


class RemoteHost:
    """The host of another machine, seen from the manager's."""

    def __init__(self, args: Namespace, logs: Path, node: Node) -> None:
        self.address, self.node = node.address, node.id
        affinity = NodeAffinitySchedulingStrategy(node.id, soft=False)
        remote = ray.remote(HostActor).options(num_cpus=0, scheduling_strategy=affinity)
        self._actor = remote.remote(args, str(logs), node)

    def free_ports(self, count: int) -> list[int]:
        """Ports of that machine that were free a moment ago."""
        ports: list[int] = self._get(self._actor.free_ports.remote(count))
        return ports

    def meeting_port(self) -> int:
        """A free port over there for the ranks of an engine on several machines."""
        return int(self._get(self._actor.meeting_port.remote()))

    def start(
        self,
        plan: EnginePlan,
        port: int,
        encoder_urls: Sequence[str],
        gpu_ids: Sequence[int],
        node_rank: int = 0,
        meet_at: str = "",
    ) -> Process:
        """Start an engine, or its part, over there.

        Raises:
            EngineDied: the machine is gone.
        """
        call = self._actor.start_remotely.remote(
            plan, port, encoder_urls, gpu_ids, node_rank, meet_at
        )
        pid, log = self._get(call)
        return RemoteProcess(self, process_name(plan, node_rank), pid, log)

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of a process over there.

        Raises:
            EngineDied: the machine is gone.
        """
        return self._get(self._actor.ask.remote(name, method, *arguments))

    def stop(self) -> None:
        """End the actor, and with it what it started."""
        with contextlib.suppress(EngineDied):
            self._get(self._actor.stop.remote())
        ray.kill(self._actor)

    def _get(self, call: ray.ObjectRef) -> Any:
        try:
            return ray.get(call)
        except RayActorError as error:
            gone = f"the machine {self.address}, which ran engines, is gone: {error}"
            raise EngineDied(gone) from None


class RemoteProcess:
    """A server process on another machine; every question is a call to its host."""

    def __init__(self, host: RemoteHost, name: str, pid: int, log: Path) -> None:
        self.name, self.pid, self.log = name, pid, log
        self._host = host

    def is_alive(self) -> bool:
        """Whether the server itself still runs."""
        return bool(self._host.ask(self.name, "is_alive"))

    def check(self) -> None:
        """Raise `EngineDied` if it ended or is frozen, or its machine ended."""
        self._host.ask(self.name, "check")

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of its log."""
        try:
            return str(self._host.ask(self.name, "log_tail", lines))
        except EngineDied as error:
            return str(error)

    def set_log_aside(self, suffix: str) -> None:
        """Give the log another ending."""
        self._host.ask(self.name, "set_log_aside", suffix)

    def note_shared_memory(self) -> None:
        """Remember its shared memory."""
        self._ask_if_there("note_shared_memory")

    def terminate(self) -> None:
        """Ask it to end."""
        self._ask_if_there("terminate")

    def kill(self, patience: float) -> None:
        """Wait so many seconds, then end it by force."""
        self._ask_if_there("kill", patience)

    def _ask_if_there(self, method: str, *arguments: float) -> None:
        with contextlib.suppress(EngineDied):  # it ended with its machine
            self._host.ask(self.name, method, *arguments)


def hosts_of(args: Namespace, logs: Path, nodes: Sequence[Node]) -> list[Host]:
    """A host for each slot of the engines; none where all slots are on this machine."""
    here = ray.get_runtime_context().get_node_id()
    if {node.id for node in nodes} <= {here}:
        return []
    hosts: dict[str, Host] = {}
    for node in nodes:
        if node.id not in hosts:
            is_here = node.id == here
            hosts[node.id] = (
                EngineHost(args, logs, node.address, node.id)
                if is_here
                else RemoteHost(args, logs, node)
            )
    return [hosts[node.id] for node in nodes]
