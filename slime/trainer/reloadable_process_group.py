"""Process groups that can be torn down and built again behind the objects that others hold.

NCCL keeps hundreds of megabytes of GPU memory per group, which an offloaded trainer should give
back. Megatron holds its groups by reference, so it gets stand-ins: `destroy_process_groups` ends
what is behind them, the default group too, and `reload_process_groups` makes the same groups in the
same order. Both are collective. Published as `slime.utils.reloadable_process_group`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

_FORWARDED = (
    "abort",
    "barrier",
    "broadcast",
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor_coalesced",
    "alltoall_base",
    "alltoall",
    "send",
    "recv",
    "recv_anysource",
    "monitored_barrier",
    "_allgather_base",
    "_reduce_scatter_base",
    "_start_coalescing",
    "_end_coalescing",
    "_get_backend",
    "_get_backend_name",
)


class ReloadableProcessGroup(dist.ProcessGroup):
    """Stands for ``group``, and for what takes its place after a reload.

    Args:
        group: the real group.
        ranks: its global ranks.
        creation_args, creation_kwargs: of `torch.distributed.new_group`, to make it again.
        backend: "nccl", "gloo"; of messages only.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        ranks: list[int],
        *,
        creation_args: tuple[Any, ...] = (),
        creation_kwargs: dict[str, Any] | None = None,
        backend: str = "nccl",
    ) -> None:
        super().__init__(group.rank(), group.size())
        self.group: dist.ProcessGroup | None = group
        self.ranks, self.backend = ranks, backend
        self.creation_args, self.creation_kwargs = creation_args, creation_kwargs or {}
        self._rank, self._size, self._name = group.rank(), group.size(), group.name()

    @staticmethod
    def destroy_process_groups() -> None:
        """See :func:`destroy_process_groups`."""
        destroy_process_groups()

    @staticmethod
    def invalidate_process_groups() -> None:
        """The real groups are gone (somebody else ended them): none may be used until a reload."""
        for _, _, group in _made:
            if group is not None:
                group.group = None

    @staticmethod
    def reload_process_groups() -> None:
        """See :func:`reload_process_groups`."""
        reload_process_groups()

    def real(self) -> dist.ProcessGroup:
        """The group behind this.

        Raises:
            RuntimeError: it was torn down and not made again.
        """
        if self.group is None:
            raise RuntimeError(f"the {self.backend} group of ranks {self.ranks} is not loaded")
        return self.group

    def rank(self) -> int:
        """This process's rank in the group; known also while it is torn down."""
        return self._rank

    def size(self) -> int:
        """Number of ranks."""
        return self._size

    def name(self) -> str:
        """The backend's name."""
        return self._name

    def shutdown(self) -> None:
        """End the real group."""
        if self.group is not None:
            self.group.shutdown()
            self.group = None

    @property
    def bound_device_id(self) -> torch.device | None:
        """The device that the real group is bound to."""
        return self.real().bound_device_id

    @bound_device_id.setter
    def bound_device_id(self, dev: torch.device | None) -> None:
        self.real().bound_device_id = dev


def _forward(name: str) -> Callable[..., Any]:
    def method(self: ReloadableProcessGroup, *a: Any, **kw: Any) -> Any:
        return getattr(self.real(), name)(*a, **kw)

    method.__name__, method.__doc__ = name, f"As the real group's `{name}`."
    return method


for _name in _FORWARDED:
    setattr(ReloadableProcessGroup, _name, _forward(_name))

# Every new_group in order, with its stand-in (None where this process is no member), and what the
# default group was made of.
_made: list[tuple[tuple[Any, ...], dict[str, Any], ReloadableProcessGroup | None]] = []
_default: dict[str, Any] = {}
_plain_new_group = dist.new_group
_plain_init = dist.init_process_group
_reloads = 0


def monkey_patch_torch_dist() -> None:
    """From now on `torch.distributed.new_group` gives stand-ins; before `init_process_group`."""
    dist.new_group = _new_group
    dist.init_process_group = _init_process_group


def _init_process_group(**kwargs: Any) -> None:
    _default.clear()
    _default.update(kwargs)
    _made.clear()
    _plain_init(**kwargs)


def _new_group(*args: Any, **kwargs: Any) -> Any:
    group = _plain_new_group(*args, **kwargs)
    standin = None
    if isinstance(group, dist.ProcessGroup):
        ranks = dist.get_process_group_ranks(group)
        standin = ReloadableProcessGroup(
            group,
            ranks,
            creation_args=args,
            creation_kwargs=kwargs,
            backend=dist.get_backend(group),
        )
        _register(standin)
    _made.append((args, kwargs, standin))
    return group if standin is None else standin


def _register(standin: ReloadableProcessGroup) -> None:
    """torch.distributed knows groups by tables; the stand-in gets the real one's entries."""
    world, real = c10d._world, standin.real()
    tables = (world.pg_map, world.pg_names, world.pg_group_ranks, world.pg_backend_config)
    for table in (*tables, world.pg_to_tag):
        if real in table:
            table[standin] = table[real]


def in_force() -> bool:
    """Whether the groups of this process can be torn down and made again."""
    return bool(_default)


def destroy_process_groups() -> None:
    """End every group of this process, the default one too; their stand-ins stay.

    Raises:
        RuntimeError: :func:`monkey_patch_torch_dist` was not in force when they were made.
    """
    if not in_force():
        raise RuntimeError("the process groups were made without monkey_patch_torch_dist()")
    dist.barrier()  # nobody may still wait for a message of another
    for _, _, standin in _made:
        if standin is not None:
            for table in (c10d._world.pg_map, c10d._world.pg_names, c10d._world.pg_group_ranks):
                table.pop(standin, None)
    ReloadableProcessGroup.invalidate_process_groups()
    dist.destroy_process_group()


def reload_process_groups() -> None:
    """Make all groups again; does nothing while they exist."""
    global _reloads
    if dist.is_initialized():
        return
    _reloads += 1
    store = dist.PrefixStore(f"reload{_reloads}", _default["store"])
    _plain_init(**{**_default, "store": store})
    for args, kwargs, standin in _made:
        group = _plain_new_group(*args, **kwargs)
        if standin is not None:
            standin.group = group
            _register(standin)
