"""Free ports, and the interface of an address.

Between the choice of a port and a server's bind somebody else may take it, so whoever starts a
server must be ready to start it again on another port when `says_port_taken` recognises the reason
in its log.
"""

import re
import socket
from contextlib import ExitStack

import psutil

_TRIES = 50
_PORTS = 2**16
_TAKEN = re.compile(r"address already in use|errno 98\b|os error 98\b", re.IGNORECASE)


def free_ports(count: int, host: str = "127.0.0.1", preferred: int | None = None) -> list[int]:
    """`count` different TCP ports that were free a moment ago; the first is `preferred` if that one
    is free."""
    with ExitStack() as held:  # all are held until all are chosen, so none is chosen twice
        ports = []
        for index in range(count):
            holder = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            if index == 0 and preferred is not None and _binds(holder, host, preferred):
                ports.append(preferred)
                continue
            holder.bind((host, 0))
            ports.append(holder.getsockname()[1])
        return ports


def free_run(length: int, host: str = "127.0.0.1") -> int:
    """The first of `length` ports in a row that were free a moment ago.

    Raises:
        OSError: none were found.
    """
    for _ in range(_TRIES):
        (first,) = free_ports(1, host)
        with ExitStack() as held:
            sockets = [held.enter_context(socket.socket()) for _ in range(length)]
            places = range(first, min(first + length, _PORTS))
            if all(map(_binds, sockets, [host] * length, places)) and len(places) == length:
                return first
    raise OSError(f"no {length} free ports in a row on {host}")


def interface_of(address: str) -> str:
    """The network interface that has the IP address; empty if none of this machine does."""
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            return name
    return ""


def _binds(holder: socket.socket, host: str, port: int) -> bool:
    # Servers listen with this option too: connections of a killed one, which the kernel still
    # remembers, do not count.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((host, port))
    except OSError:
        return False
    return True


def says_port_taken(log_text: str) -> bool:
    """Whether a server's log says that it could not bind its port."""
    return _TAKEN.search(log_text) is not None
