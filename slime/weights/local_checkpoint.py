"""A checkpoint on a local disk that is changed in place, tensor by tensor.

The bytes of a tensor keep their place in a safetensors file as long as names, shapes and dtypes do,
so an update writes only what changed. While it is under way the checkpoint says of itself that it
is incomplete, and after a crash it stays so.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from slime.weights.delta_codec import Bytes

_VERSION = "weight_version"
_INDEX = "model.safetensors.index.json"


class LocalCheckpoint:
    """A folder of safetensors files with a version; None while it is incomplete or absent."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._places: dict[str, tuple[Path, int, int]] = {}
        self._mapped: dict[Path, Bytes] = {}
        if self.version is not None:
            self._find_places()

    @property
    def version(self) -> int | None:
        """The version that it holds whole."""
        try:
            return int((self.folder / _VERSION).read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    @property
    def run(self) -> str:
        """Whose version that is; empty where it holds none."""
        try:
            return (self.folder / _VERSION).read_text().partition(" ")[2]
        except OSError:
            return ""

    def begin(self) -> None:
        """Incomplete from now on."""
        (self.folder / _VERSION).unlink(missing_ok=True)

    def complete(self, version: int, run: str) -> None:
        """Whole again: everything of the run's `version` has been written."""
        for content in self._mapped.values():
            if isinstance(content, np.memmap):
                content.flush()
        partial = self.folder / f".{_VERSION}.partial"
        partial.write_text(f"{version} {run}")
        os.replace(partial, self.folder / _VERSION)

    def clear(self) -> None:
        """Forget all weights."""
        self.begin()
        self._places, self._mapped = {}, {}
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in [*self.folder.glob("*.safetensors"), self.folder / _INDEX]:
            file.unlink(missing_ok=True)

    def add(self, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Write whole tensors that are not there yet, as one more file."""
        number = len(list(self.folder.glob("*.safetensors"))) + 1
        own = {name: own_copy(tensor) for name, tensor in named_tensors}
        save_file(own, self.folder / f"model-{number:05d}.safetensors", metadata={"format": "pt"})

    def seal(self) -> None:
        """Write the index of the files; tensors can be read and changed from now on."""
        self._find_places()
        weight_map = {name: path.name for name, (path, _, _) in self._places.items()}
        (self.folder / _INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    def bytes_of(self, name: str) -> Bytes:
        """A tensor's bytes in its file: what is written into them goes to the disk.

        Raises:
            ValueError: there is no such tensor.
        """
        if name not in self._places:
            raise ValueError(f"{self.folder} has no tensor {name}")
        path, start, end = self._places[name]
        if path not in self._mapped:
            self._mapped[path] = np.memmap(path, dtype=np.uint8, mode="r+")
        return self._mapped[path][start:end]

    def _find_places(self) -> None:
        """Read the headers: 8 bytes of length, then JSON with offsets into what follows."""
        self._places, self._mapped = {}, {}
        for path in sorted(self.folder.glob("*.safetensors")):
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
            for name, entry in header.items():
                if name != "__metadata__":
                    start, end = (8 + length + offset for offset in entry["data_offsets"])
                    self._places[name] = (path, start, end)


def own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor in host memory that shares nothing (else safetensors refuses it)."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
