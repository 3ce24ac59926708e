"""Who allocated which memory, a file for each rank: of a GPU by PyTorch, of the host by memray."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


class MemoryHistory:
    """Records nothing: what a run has that does not ask for a record."""

    def trained(self) -> None:
        """One more rollout has been trained on."""

    def close(self) -> None:
        """Stop recording; the file is whole afterwards. Once more does nothing."""


class _Recorder(MemoryHistory):
    """Records over ``--memory-snapshot-num-steps`` rollouts of this process, or all of them."""

    def __init__(self, args: Namespace, file: Path) -> None:
        self._left: int | None = args.memory_snapshot_num_steps
        self._file = file
        self._open = True
        file.parent.mkdir(parents=True, exist_ok=True)

    def trained(self) -> None:
        if not self._open:
            return
        self._write()
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._stop()

    def _write(self) -> None:
        """Bring the file up to date."""

    def _stop(self) -> None:
        """Record no more."""


class TorchHistory(_Recorder):
    """GPU memory, for pytorch.org/memory_viz; the file is written anew after every rollout, and
    when a GPU runs out of memory.
    """

    def __init__(self, args: Namespace, file: Path) -> None:
        super().__init__(args, file)
        torch.cuda.memory._record_memory_history()
        torch._C._cuda_attach_out_of_memory_observer(self._out_of_memory)

    def _out_of_memory(self, device: int, alloc: int, total: int, free: int) -> None:
        if self._open:
            self._write()

    def _write(self) -> None:
        torch.cuda.memory._dump_snapshot(str(self._file))

    def _stop(self) -> None:
        torch.cuda.memory._record_memory_history(enabled=None)


class MemrayHistory(_Recorder):
    """Host memory, for `memray flamegraph`; the file grows while the run goes on."""

    def __init__(self, args: Namespace, file: Path) -> None:
        """
        Raises:
            ImportError: the package is missing.
            RuntimeError: memray records in this process already.
        """
        super().__init__(args, file)
        import memray

        destination = memray.FileDestination(str(file), overwrite=True)
        self._tracker: Any = memray.Tracker(destination=destination)
        self._tracker.__enter__()

    def _stop(self) -> None:
        self._tracker.__exit__(None, None, None)


def record_memory(args: Namespace, role: str) -> MemoryHistory:
    """Begin the record that ``--record-memory-history`` or ``--memory-snapshot-num-steps`` ask for.

    The file is ``--memory-snapshot-path`` in ``--memory-snapshot-dir``, with role and rank in its
    name; memray's ends in ``.bin``.
    """
    if not args.record_memory_history and args.memory_snapshot_num_steps is None:
        return MemoryHistory()
    memray = args.memory_recorder == "memray"
    file = Path(args.memory_snapshot_dir, args.memory_snapshot_path)
    name = f"{file.stem}_{role}_rank{dist.get_rank()}{'.bin' if memray else file.suffix}"
    return (MemrayHistory if memray else TorchHistory)(args, file.with_name(name))
