"""Connections to engines that break when the other machine is gone, and wait for a slow answer."""

import socket
from typing import Any

import requests
from requests.adapters import HTTPAdapter

_PROBES = 3  # of a silent connection, within the time that a machine may be silent


class _Watched(HTTPAdapter):
    """The kernel asks the other machine's kernel, so an engine that is busy with what it was sent
    is never taken for a lost one; one that takes nothing of a large body for so long is."""

    def __init__(self, unreachable: float) -> None:
        self._unreachable = unreachable
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        between = max(1, round(self._unreachable / _PROBES))
        options["socket_options"] = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, between),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, between),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
            # What was sent and not acknowledged; no probes are sent while there is any.
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * self._unreachable)),
        ]
        super().init_poolmanager(*args, **options)


def session(unreachable: float) -> requests.Session:
    """Whose requests fail (`requests.RequestException`) once the other machine has acknowledged
    nothing for `unreachable` seconds. No proxy of the environment is used."""
    made = requests.Session()
    made.trust_env = False
    for scheme in ("http://", "https://"):
        made.mount(scheme, _Watched(unreachable))
    return made
