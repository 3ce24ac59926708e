"""Read Hugging Face safetensors: an index of what lies where, and only what is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open


class CheckpointError(ValueError):
    """A checkpoint is not what it should be; the message names it and all that is wrong."""


class SafetensorReader:
    """Tensors by name from ``*.safetensors``; a file is mapped when first needed."""

    def __init__(self, path: str | Path) -> None:
        """
        Raises:
            CheckpointError: the folder holds no safetensors, or its index names files that are not
                there.
        """
        self.path = Path(path)
        self._open: dict[str, Any] = {}
        index = self.path / "model.safetensors.index.json"
        if index.is_file():
            self._files: dict[str, str] = json.loads(index.read_text())["weight_map"]
            missing = sorted(f for f in set(self._files.values()) if not (self.path / f).is_file())
            if missing:
                raise CheckpointError(
                    f"{self.path}: the index names files that are not there: {missing}"
                )
            return
        self._files = {}
        for file in sorted(self.path.glob("*.safetensors")):
            self._files.update(dict.fromkeys(self._handle(file.name).keys(), file.name))
        if not self._files:
            raise CheckpointError(f"{self.path} holds no *.safetensors")

    def _handle(self, file: str) -> Any:
        if file not in self._open:
            self._open[file] = safe_open(self.path / file, framework="pt", device="cpu")
        return self._open[file]

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def names(self) -> set[str]:
        """Every tensor of the checkpoint."""
        return set(self._files)

    def get_tensor(self, name: str) -> torch.Tensor:
        """
        Raises:
            KeyError: no such tensor.
        """
        if name not in self._files:
            raise KeyError(f"{self.path} has no tensor {name!r}")
        return self._handle(self._files[name]).get_tensor(name)
