"""GPU memory of a trainer, given back while others use the GPU: the order, and who does it.

Tensors are made inside a region. A region is paused (its memory is free for other processes) and
resumed; what has a backup has its content again then. The order is checked the same way whether
torch_memory_saver does it on a GPU or nobody does on a CPU, so that runs on a CPU find mistakes.
"""

from __future__ import annotations

import contextlib
import gc
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch

from slime.trainer import reloadable_process_group as reloadable
from slime.trainer.regions import GRADIENTS, REGIONS


class MemorySaver:
    """Checks the order of calls and moves nothing: all that a CPU needs.

    Attributes:
        calls: what was asked for, in order, e.g. ``"pause optimizer"``.
        paused: the regions whose tensors must not be touched now.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.paused: set[str] = set()
        self._inside: list[str] = []

    @contextlib.contextmanager
    def region(self, name: str) -> Iterator[None]:
        """Tensors made inside belong to region ``name``; the one around comes back afterwards."""
        self.needs(name)
        self._inside.append(name)
        try:
            with self._region(name):
                yield
        finally:
            self._inside.pop()

    def needs(self, *names: str) -> None:
        """Say that tensors of these regions are used now.

        Raises:
            RuntimeError: one of them is paused.
        """
        gone = [name for name in names if name in self.paused]
        if gone:
            raise RuntimeError(f"the memory of {', '.join(gone)} is paused; resume it before use")

    def pause(self, *names: str) -> None:
        """Free the memory of regions.

        Raises:
            RuntimeError: one is paused already, or being filled.
        """
        for name in names:
            if name in self.paused or self._inside:
                state = "is paused already" if name in self.paused else "is being filled"
                raise RuntimeError(f"cannot pause {name}: it {state}")
        self._before_pause()
        for name in names:
            self.calls.append(f"pause {name}")
            self.paused.add(name)
            self._pause(name)

    def resume(self, *names: str) -> None:
        """Bring regions back, with their content where they have a backup.

        Raises:
            RuntimeError: one is not paused.
        """
        for name in names:
            if name not in self.paused:
                raise RuntimeError(f"cannot resume {name}: it is not paused")
        for name in names:
            self.calls.append(f"resume {name}")
            self._resume(name)
            self.paused.remove(name)

    def _region(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _before_pause(self) -> None:
        """What has to be still before memory goes away."""

    def _pause(self, name: str) -> None:
        """Free."""

    def _resume(self, name: str) -> None:
        """Bring back."""


class TorchMemorySaver(MemorySaver):
    """Unmaps GPU memory, and keeps addresses, by the torch_memory_saver package."""

    def __init__(self) -> None:
        """
        Raises:
            ImportError: the package is missing.
        """
        super().__init__()
        from torch_memory_saver import torch_memory_saver

        torch_memory_saver.hook_mode = "torch"  # needs no LD_PRELOAD in the environment
        self._saver: Any = torch_memory_saver

    def pause(self, *names: str) -> None:
        """As the base; with everything gone, the process groups and their buffers go too."""
        super().pause(*names)
        if self.paused >= set(REGIONS) and reloadable.in_force():
            reloadable.destroy_process_groups()

    def resume(self, *names: str) -> None:
        """As the base, after the process groups are there again."""
        if reloadable.in_force():
            reloadable.reload_process_groups()
        super().resume(*names)

    def _region(self, name: str) -> contextlib.AbstractContextManager[None]:
        region: contextlib.AbstractContextManager[None] = self._saver.region(
            tag=name,
            # gradients mean nothing between two rollouts
            enable_cpu_backup=name != GRADIENTS,
        )
        return region

    def _before_pause(self) -> None:
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()  # activations of the last step, which are in no region

    def _pause(self, name: str) -> None:
        self._saver.pause(name)

    def _resume(self, name: str) -> None:
        self._saver.resume(name)


def make_memory_saver(args: Namespace) -> MemorySaver:
    """The saver for this device; without ``--offload-train`` nothing ever pauses."""
    real = args.offload_train and args.device == "cuda"
    return TorchMemorySaver() if real else MemorySaver()
