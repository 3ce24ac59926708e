"""Write torch_dist shards in this process, in a thread.

Megatron's writer starts a Manager process (which imports the entry script again) and forks a writer
per file, and waits for them without a limit; one rank that cannot write leaves the others waiting.
A thread that writes copies needs none of that (the interpreter lock is free during writes), and
ends with the process.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from megatron.core.dist_checkpointing.core import CheckpointingConfig, save_config
from megatron.core.dist_checkpointing.mapping import ShardedStateDict
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync
from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy

from slime.trainer.checkpoint_files import Checksum, checksum

Bucket = tuple[str, str, tuple[list[Any], list[tuple[Any, torch.Tensor]]]]


@dataclass
class Written:
    """What a rank has written: checksums by file name, and torch's record of each tensor."""

    checksums: dict[str, Checksum] = field(default_factory=dict)
    records: list[Any] = field(default_factory=list)


class BackgroundWrite:
    """A planned save whose files a thread writes; it touches nothing but copies and files.

    Without ``copy`` tensors in host memory are written as they are: the caller must wait for
    :meth:`result` before it changes them. To make one is collective.
    """

    def __init__(self, content: ShardedStateDict, folder: Path, copy: bool) -> None:
        planning = _Planning()
        planning.async_save(content, folder)
        self._writer, self._metadata, self._folder = planning.writer, planning.metadata, folder
        self._written = Written()
        self._error: Exception | None = None
        buckets = [_to_host(bucket, copy) for bucket in self._writer.write_buckets]
        self._writer.write_buckets = None
        self._thread = threading.Thread(
            target=self._write, args=(buckets,), name="checkpoint", daemon=True
        )
        self._thread.start()

    def done(self) -> bool:
        """Whether this rank has written all it has to."""
        return not self._thread.is_alive()

    def result(self) -> Written:
        """Wait for this rank's files.

        Raises:
            OSError: writing failed.
        """
        self._thread.join()
        if self._error is not None:
            raise OSError(str(self._error)) from self._error
        return self._written

    def write_metadata(self, parts: list[Written]) -> None:
        """On rank 0: what Megatron reads first, from the results of every rank."""
        self._writer.finish(self._metadata, [part.records for part in parts])
        save_config(CheckpointingConfig("torch_dist", 1), str(self._folder))

    def _write(self, buckets: list[Bucket]) -> None:
        transforms = [self._writer.transforms] if hasattr(self._writer, "transforms") else []
        for index, bucket in enumerate(buckets):
            done: queue.Queue = queue.Queue()
            pending: queue.Queue = queue.Queue()
            pending.put(index)
            FileSystemWriterAsync.write_preloaded_data(
                transforms, index, bucket, done, pending, use_fsync=True
            )
            _, outcome = done.get_nowait()
            if isinstance(outcome, Exception):
                self._error = outcome
                return
            self._written.records += outcome
            self._written.checksums[bucket[1]] = checksum(Path(bucket[0]))


class _Planning(TorchDistSaveShardedStrategy):
    """Megatron's plan of a save with one file per rank, without its machinery for writing."""

    def __init__(self) -> None:
        super().__init__("torch_dist", 1, thread_count=1)

    def async_save(
        self, sharded_state_dict: ShardedStateDict, checkpoint_dir: Path
    ) -> AsyncRequest:
        filesystem_async._results_queue = queue.Queue()  # else a Manager process is started for it
        return super().async_save(sharded_state_dict, checkpoint_dir)

    def _get_save_and_finalize_callbacks(
        self, writer: FileSystemWriterAsync, save_state_dict_ret: Any
    ) -> AsyncRequest:
        self.writer, self.metadata = writer, save_state_dict_ret[1]
        return AsyncRequest(None, (), [])


def _to_host(bucket: Bucket, copy: bool) -> Bucket:
    file_name, storage_key, (bytes_data, tensors) = bucket
    moved = [(item, tensor.detach().to("cpu", copy=copy)) for item, tensor in tensors]
    return file_name, storage_key, (bytes_data, moved)
