"""A process group beside the trainer's own, with members that torch does not know of here."""

import contextlib
import datetime
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import _new_process_group_helper, _world


@dataclass(frozen=True)
class Meeting:
    """Where the members of a group meet: a socket that listens on one address of this machine."""

    host: str
    port: int
    listener: socket.socket


@contextlib.contextmanager
def meeting(host: str) -> Iterator[Meeting]:
    """Listen on `host`, on a port that the system chose. Torch's own store would listen on every
    interface, and on a port that somebody else may have taken meanwhile."""
    with socket.create_server((host, 0), family=socket.AF_INET) as listener:
        yield Meeting(host, listener.getsockname()[1], listener)


def join_as_first(
    place: Meeting, backend: str, world_size: int, name: str, timeout: datetime.timedelta
) -> Any:
    """Rank 0 of a new group; returns when the other `world_size - 1` ranks are there.

    SGLang builds its side with the same function of torch, which has no public counterpart for a
    group that is not a part of the default one.

    Raises:
        RuntimeError: the others did not come within `timeout`.
    """
    store = dist.TCPStore(
        place.host,
        place.port,
        world_size,
        is_master=True,
        timeout=timeout,
        master_listen_fd=place.listener.detach(),
    )
    group, _ = _new_process_group_helper(
        world_size,
        0,
        [],
        dist.Backend(backend),
        dist.PrefixStore(name, store),
        group_name=name,
        timeout=timeout,
    )
    _world.pg_group_ranks[group] = {rank: rank for rank in range(world_size)}
    return group
