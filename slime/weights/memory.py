"""A bucket in anonymous memory that a process of the same user on this machine can map.

The kernel frees it with its last user, however that one ends: nothing is left in /dev/shm.
"""

import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from slime.weights.buckets import Entry, fill, layout, view

LOADER = "slime.weights.memory.load"
"""For SGLang's `--custom-weight-loader` and `load_format`."""


class MemoryBucket:
    """Holds one bucket at a time; grows to the largest."""

    def __init__(self) -> None:
        self._file = os.memfd_create("slime-weights", os.MFD_CLOEXEC)
        self._flat = torch.empty(0, dtype=torch.uint8)

    def put(self, named_tensors: Sequence[tuple[str, torch.Tensor]]) -> torch.Tensor:
        """Copy the tensors in; returns what `load` needs to find them, as a byte tensor."""
        entries, size = layout(named_tensors)
        if size > self._flat.numel():
            os.ftruncate(self._file, size)
            self._flat = _mapped(f"/proc/self/fd/{self._file}", size, shared=True)
        fill(self._flat, entries, [tensor for _, tensor in named_tensors])
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        where = {"path": path, "size": size, "entries": [asdict(entry) for entry in entries]}
        return torch.frombuffer(bytearray(json.dumps(where).encode()), dtype=torch.uint8)

    def close(self) -> None:
        """Let go of the memory."""
        self._flat = torch.empty(0, dtype=torch.uint8)
        os.close(self._file)


def load(model: Any, named_tensors: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Inside an engine: give the model what lies in its neighbour's memory."""
    for _, description in named_tensors:
        where = json.loads(description.cpu().numpy().tobytes())
        flat = _mapped(where["path"], where["size"], shared=False)
        entries = [Entry(**entry) for entry in where["entries"]]
        model.load_weights((entry.name, view(flat, entry)) for entry in entries)


def _mapped(path: str, size: int, *, shared: bool) -> torch.Tensor:
    """The bytes of a file. Not shared means: read only what is there, never write back."""
    with open(path, "r+b" if shared else "rb") as file:
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        return torch.frombuffer(mmap.mmap(file.fileno(), size, access=access), dtype=torch.uint8)
