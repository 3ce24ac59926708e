"""Write torch_dist shards in this process.

Megatron's writer starts a Manager process (which imports the entry script again) and forks a writer
per file, and waits for them without a limit. Inside a Ray actor neither is welcome, and a
synchronous save gains nothing by it; so the same bytes are written here, one file after the other.
"""

from __future__ import annotations

import queue
from functools import partial
from pathlib import Path
from typing import Any

from megatron.core.dist_checkpointing.mapping import ShardedStateDict
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync
from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy


class InProcessSaveStrategy(TorchDistSaveShardedStrategy):
    """The torch_dist format, written by this process; one file per rank."""

    def __init__(self) -> None:
        super().__init__("torch_dist", 1, thread_count=1)

    def async_save(
        self, sharded_state_dict: ShardedStateDict, checkpoint_dir: Path
    ) -> AsyncRequest:
        """Plan the save; the writer's results go to a queue of this process, not a Manager's."""
        filesystem_async._results_queue = queue.Queue()
        return super().async_save(sharded_state_dict, checkpoint_dir)

    def _get_save_and_finalize_callbacks(
        self, writer: Any, save_state_dict_ret: Any
    ) -> AsyncRequest:
        request = super()._get_save_and_finalize_callbacks(writer, save_state_dict_ret)
        if request.async_fn is None:
            return request
        transforms = [writer.transforms] if hasattr(writer, "transforms") else []
        return request._replace(async_fn=partial(_write_buckets, transforms))


def _write_buckets(
    transforms: list[Any], rank: int, buckets: list[Any], results: queue.Queue
) -> None:
    """Write every bucket; report {index: write results}, or the first exception."""
    written: dict[int, Any] = {}
    for index, bucket in enumerate(buckets):
        done: queue.Queue = queue.Queue()
        pending: queue.Queue = queue.Queue()
        pending.put(index)
        FileSystemWriterAsync.write_preloaded_data(
            transforms, index, bucket, done, pending, use_fsync=True
        )
        _, outcome = done.get_nowait()
        if isinstance(outcome, Exception):
            results.put(outcome)
            return
        written[index] = outcome
    results.put(written)
