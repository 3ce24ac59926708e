"""Two network namespaces with a cable between them, which a test can cut.

Only root may make them, and not in every sandbox: `why_not` says so. All addresses are in the
namespaces; the machine's own network is not touched.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

_CLONE_NEWNET = 0x40000000
_NOBODY = "02:00:00:00:00:99"


@dataclass(frozen=True)
class Cable:
    """`near` and `far` are the names of the namespaces, with the addresses of their ends."""

    near: str
    far: str
    near_address: str
    far_address: str

    def cut(self) -> None:
        """What is sent from now on is lost; nobody is told."""
        _ip("-n", self.far, "link", "set", "cable", "down")

    def mend(self) -> None:
        """Undo `cut`."""
        _ip("-n", self.far, "link", "set", "cable", "up")

    def swallow(self) -> None:
        """As `cut`, but as behind a router: not even that the neighbour is gone can be seen."""
        for namespace, to in ((self.near, self.far_address), (self.far, self.near_address)):
            entry = (to, "lladdr", _NOBODY, "dev", "cable", "nud", "permanent")
            _ip("-n", namespace, "neighbour", "replace", *entry)


def why_not() -> str:
    """Why this process cannot make namespaces; empty if it can."""
    if shutil.which("ip") is None:
        return "there is no program `ip` (iproute2)"
    try:
        with cable(f"slime-probe-{os.getpid()}") as probe, inside(probe.near):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces cannot be made here: {getattr(error, 'stderr', '') or error}"


@contextlib.contextmanager
def cable(name: str) -> Iterator[Cable]:
    """Namespaces `<name>-near` and `<name>-far`, deleted in the end with what is in them."""
    made = Cable(f"{name}-near", f"{name}-far", "192.0.2.1", "192.0.2.2")
    try:
        for namespace in (made.near, made.far):
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        ends = ("cable", "netns", made.near, "type", "veth", "peer", "cable", "netns", made.far)
        _ip("link", "add", *ends)
        for namespace, address in (
            (made.near, made.near_address),
            (made.far, made.far_address),
        ):
            _ip("-n", namespace, "address", "add", f"{address}/30", "dev", "cable")
            _ip("-n", namespace, "link", "set", "cable", "up")
        yield made
    finally:
        for namespace in (made.near, made.far):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", namespace)


def enter(namespace: str) -> None:
    """Move the calling thread, and all that it starts from now on, into a namespace."""
    _enter(f"/run/netns/{namespace}")


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """The calling thread is in a namespace; threads and processes that it starts stay there."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        enter(namespace)
        yield
    finally:
        _enter(f"/proc/self/fd/{before}")
        os.close(before)


def _enter(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns({path}) failed")
    finally:
        os.close(descriptor)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
