"""Weights by files: a checkpoint is written to a folder that engines can read, and they load it."""

import json
import os
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from slime.hooks.loading import load_function
from slime.weights.engine_calls import EngineCalls
from slime.weights.local_checkpoint import own_copy
from slime.weights.updater import NamedTensors, WeightUpdater

_INDEX = "model.safetensors.index.json"
_WEIGHTS = (".safetensors", ".bin", ".pt")


def version_folder(root: str | Path, version: int) -> Path:
    """Where a version lies."""
    return Path(root) / f"weights_{version:08d}"


class DiskWeightUpdater(WeightUpdater):
    """Writes `<root>/weights_<version>`, one shard for each bucket, and lets the engines read it.

    A folder appears under its name only when it is whole. Older versions are removed when all
    engines have the new one, unless `keep_files`.
    """

    def __init__(
        self, args: Namespace, root: str | Path, keep_files: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self._args, self._root, self._keep_files = args, Path(root), keep_files
        self._partial = self._root
        self._shards: list[list[str]] = []

    def _begin(self, calls: EngineCalls, version: int) -> None:
        self._partial = self._root / f".weights_{version:08d}.partial"
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        self._shards = []

    def _send(self, calls: EngineCalls, bucket: NamedTensors) -> None:
        tensors = {name: own_copy(tensor) for name, tensor in bucket}
        file = self._partial / f"model-{len(self._shards) + 1:05d}.safetensors"
        save_file(tensors, file, metadata={"format": "pt"})
        self._shards.append(list(tensors))

    def _end(self, calls: EngineCalls, version: int) -> None:
        folder = self._publish(version)
        calls.post("/update_weights_from_disk", {"model_path": str(folder), "flush_cache": True})
        if not self._keep_files and not calls.failed:
            remove_older(self._root, version)

    def _publish(self, version: int) -> Path:
        files = [f"model-{index + 1:05d}.safetensors" for index in range(len(self._shards))]
        weight_map = {
            name: file for file, names in zip(files, self._shards, strict=True) for name in names
        }
        (self._partial / _INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        link_assets(Path(self._args.hf_checkpoint), self._partial)
        folder = version_folder(self._root, version)
        shutil.rmtree(folder, ignore_errors=True)  # a catch-up writes the same version again
        os.replace(self._partial, folder)
        after_write(self._args, folder)
        return folder

    def _abandon(self, calls: EngineCalls, version: int | None) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)  # no engine has seen anything of it

    def close(self) -> None:
        """Remove the last version, unless files are kept."""
        if not self._keep_files and self._version >= 0:
            remove_older(self._root, self._version + 1)


def after_write(args: Namespace, folder: Path) -> None:
    """Call the hook that may carry the files elsewhere before engines are told of them."""
    if args.custom_update_weight_post_write_path:
        load_function(args.custom_update_weight_post_write_path)(args, str(folder))


def remove_older(root: Path, version: int) -> None:
    """Remove all versions before `version`."""
    for folder in root.glob("weights_*"):
        if folder.name < version_folder(root, version).name:
            shutil.rmtree(folder, ignore_errors=True)


def link_assets(checkpoint: Path, folder: Path) -> None:
    """Everything of the checkpoint but its weights: config, tokenizer, code."""
    for file in checkpoint.iterdir():
        if file.is_file() and file.suffix not in _WEIGHTS and file.name != _INDEX:
            shutil.copyfile(file, folder / file.name)
