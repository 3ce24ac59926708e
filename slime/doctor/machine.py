"""What the machine has: gathered once, so that the checks are functions of it."""

import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

import psutil

from slime.arguments.device import detect_device

UNLIMITED = resource.RLIM_INFINITY
PORTS = 64  # a run of one machine takes about a dozen
_QUERY = "--query-gpu=name,memory.total,memory.used,driver_version"


@dataclass(frozen=True)
class Gpu:
    """One device as nvidia-smi lists it; memory in MiB."""

    name: str
    memory: int
    used: int
    driver: str


@dataclass(frozen=True)
class Disk:
    """A file system: where it was asked about, bytes in all and bytes free."""

    path: str
    total: int
    free: int


@dataclass(frozen=True)
class Machine:
    """Facts about the machine and the installation; sizes in bytes.

    Attributes:
        device: `cpu` or `cuda`, as `--device=auto` would find it.
        python: Version of the interpreter.
        packages: Installed distributions: normalised name -> version.
        gpu_nodes: Number of NVIDIA devices in /dev.
        gpus: The devices that nvidia-smi lists; None if it does not work.
        infiniband: InfiniBand and RoCE adapters.
        shm: The file system for shared memory; None if there is none.
        disks: The current folder's and the temporary folder's.
        nofile: Limit of open files (soft), UNLIMITED for none.
        memlock: Limit of locked memory (soft), UNLIMITED for none.
        cpus: Number of CPUs that this process may use.
        cpu_quota: CPUs that the control group grants; None if it does not say.
        memory: Memory available.
        interfaces: Network interfaces that are up -> their IP addresses.
        host_address: What the host's own name resolves to; None if it does not.
        free_ports: How many of PORTS loopback ports could be had.
        environment: The variables of the process.
    """

    device: str = "cpu"
    python: tuple[int, ...] = (3, 11)
    packages: Mapping[str, str] = field(default_factory=dict)
    gpu_nodes: int = 0
    gpus: tuple[Gpu, ...] | None = ()
    infiniband: tuple[str, ...] = ()
    shm: Disk | None = None
    disks: tuple[Disk, ...] = ()
    nofile: int = UNLIMITED
    memlock: int = UNLIMITED
    cpus: int = 1
    cpu_quota: float | None = None
    memory: int = 0
    interfaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    host_address: str | None = None
    free_ports: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


def look(environment: Mapping[str, str]) -> Machine:
    """Gather the facts; nothing is changed and nothing is kept."""
    return Machine(
        device=detect_device(environment),
        python=sys.version_info[:2],
        packages=_packages(),
        gpu_nodes=sum(1 for node in Path("/dev").glob("nvidia*") if node.name[6:].isdecimal()),
        gpus=_gpus(),
        infiniband=tuple(sorted(path.name for path in Path("/sys/class/infiniband").glob("*"))),
        shm=_disk("/dev/shm"),
        disks=tuple(filter(None, map(_disk, (os.getcwd(), tempfile.gettempdir())))),
        nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        cpus=len(os.sched_getaffinity(0)),
        cpu_quota=_cpu_quota(),
        memory=psutil.virtual_memory().available,
        interfaces=_interfaces(),
        host_address=_host_address(),
        free_ports=_free_ports(),
        environment=dict(environment),
    )


def normalised(name: str) -> str:
    """A distribution's name as locks spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _packages() -> dict[str, str]:
    """Of two with one name the first on the path counts, as it does for an import."""
    found: dict[str, str] = {}
    for one in distributions():
        if one.metadata["Name"] and one.version:  # what a broken installation lacks
            found.setdefault(normalised(one.metadata["Name"]), one.version)
    return found


def _gpus() -> tuple[Gpu, ...] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, _QUERY, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):  # a hanging driver is no working one
        return None
    return parse_gpus(done.stdout) if done.returncode == 0 else None


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Read nvidia-smi's lines `name, memory, used, driver`. Memory that it does not tell is 0."""
    rows = [[value.strip() for value in line.split(",")] for line in text.splitlines() if line]
    return tuple(
        Gpu(name, _mebibytes(total), _mebibytes(used), driver) for name, total, used, driver in rows
    )


def _mebibytes(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _disk(path: str) -> Disk | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return Disk(path, usage.total, usage.free)


def _cpu_quota() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _interfaces() -> dict[str, tuple[str, ...]]:
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: tuple(one.address for one in addresses if one.family in families)
        for name, addresses in psutil.net_if_addrs().items()
        if name in up
    }


def _host_address() -> str | None:
    try:
        return socket.gethostbyname(platform.node())
    except OSError:
        return None


def _free_ports() -> int:
    with ExitStack() as held:
        for count in range(PORTS):
            holder = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                holder.bind(("127.0.0.1", 0))
            except OSError:
                return count
    return PORTS
