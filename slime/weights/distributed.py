"""Weights over a process group of the trainer and all engine ranks: NCCL between GPUs, gloo between
CPUs."""

import contextlib
import datetime
import itertools
import os
from typing import Any

import torch
import torch.distributed as dist

from slime.weights.engine_calls import EngineCalls
from slime.weights.process_group import join_as_first, meeting
from slime.weights.updater import NamedTensors, WeightUpdater

_numbers = itertools.count()


class DistributedWeightUpdater(WeightUpdater):
    """Broadcasts each tensor of a bucket once; every engine rank takes its part.

    `host` is the address of this machine that the engines reach. The group lives from update to
    update, is made anew for other engines, and ends with a broadcast that failed: gloo and NCCL
    leave a group of which a member died unusable.
    """

    def __init__(self, backend: str, host: str = "127.0.0.1", **options: Any) -> None:
        super().__init__(**options)
        self._backend, self._host = backend, host
        self._group: Any = None
        self._members: tuple[tuple[str, int], ...] = ()
        self._name = ""

    def _begin(self, calls: EngineCalls, version: int) -> None:
        calls.post("/begin_weight_update", {})
        members = _members(calls)
        if members != self._members or self._group is None:
            self._leave(calls)
            self._join(calls)

    def _join(self, calls: EngineCalls) -> None:
        """One group of this process (rank 0) and the ranks of all engines."""
        if not calls.engines:
            return
        members = _members(calls)
        self._name = f"slime-{os.getpid()}-{next(_numbers)}"
        sizes = [engine.num_gpus for engine in calls.engines]
        world_size = 1 + sum(sizes)
        with meeting(self._host) as place:
            common = {
                "master_address": place.host,
                "master_port": place.port,
                "world_size": world_size,
                "group_name": self._name,
                "backend": self._backend,
            }
            offsets = itertools.accumulate([1, *sizes])
            bodies = {
                engine.url: {**common, "rank_offset": offset}
                for engine, offset in zip(calls.engines, offsets, strict=False)
            }
            wait = calls.start("/init_weights_update_group", bodies)
            try:
                self._group = join_as_first(
                    place, self._backend, world_size, self._name, self._limit()
                )
            except RuntimeError as error:
                self._fail_all(calls, f"did not join the group: {error}")
        wait()
        self._members = members

    def _send(self, calls: EngineCalls, bucket: NamedTensors) -> None:
        if self._group is None or not calls.engines:
            return
        body = {
            "names": [name for name, _ in bucket],
            "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in bucket],
            "shapes": [list(tensor.shape) for _, tensor in bucket],
            "group_name": self._name,
            "flush_cache": True,
        }
        before = set(calls.failed)
        bodies = dict.fromkeys((engine.url for engine in calls.engines), body)
        wait = calls.start("/update_weights_from_distributed", bodies)
        try:
            work = [
                dist.broadcast(self._placed(tensor), src=0, group=self._group, async_op=True)
                for _, tensor in bucket
            ]
            for handle in work:
                handle.wait(self._limit())
        except RuntimeError as error:
            self._drop_group()  # closes the connections, so that the others stop waiting as well
            wait()
            self._fail_all(calls, f"lost the group in mid-update: {error}")
            return
        wait()
        if set(calls.failed) - before:
            self._drop_group()
            self._fail_all(calls, "is in a group with an engine that failed")

    def _placed(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach().contiguous()
        return tensor.cuda() if self._backend == "nccl" else tensor.cpu()

    def _end(self, calls: EngineCalls, version: int) -> None:
        calls.post("/end_weight_update", {})

    def _limit(self) -> datetime.timedelta:
        return datetime.timedelta(seconds=self._timeout)

    def _fail_all(self, calls: EngineCalls, reason: str) -> None:
        for engine in calls.engines:
            calls.failed[engine.url] = reason

    def _leave(self, calls: EngineCalls) -> None:
        """End the group of other members; one that is gone cannot leave it any more."""
        if self._group is None:
            return
        name, old = self._name, set(self._members)
        self._drop_group()
        for engine in calls.engines:
            if (engine.url, engine.starts) in old:
                with contextlib.suppress(OSError):
                    payload = f'{{"group_name":"{name}"}}'.encode()
                    calls.request(engine.url, "POST", "/destroy_weights_update_group", payload)

    def _drop_group(self) -> None:
        group, self._group, self._members = self._group, None, ()
        if group is not None:
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group(group)

    def close(self) -> None:
        """Leave the group."""
        self._drop_group()


def _members(calls: EngineCalls) -> tuple[tuple[str, int], ...]:
    """An engine that was started again at its address is not in the groups of the last one."""
    return tuple((engine.url, engine.starts) for engine in calls.engines)
