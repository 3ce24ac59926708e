"""Weights by what changed: a delta is written to a shared folder, and brings a local checkpoint
beside the engines to the next version; the engines load that.

A delta is a folder: `manifest.json` and compressed changes in `delta-*.safetensors`. The checksum
of every resulting tensor travels along, so a wrong base or a damaged file is noticed before an
engine sees it. Engines that keep a copy of their own pull it: see `slime.weights.pulling`.
"""

import json
import os
import shutil
import uuid
from argparse import Namespace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
import torch
from safetensors.torch import save_file

from slime.weights.delta_codec import Bytes, checksum, encode
from slime.weights.disk import after_write, link_assets, remove_older, version_folder
from slime.weights.engine_calls import EngineAddress, EngineCalls, Refused
from slime.weights.local_checkpoint import LocalCheckpoint
from slime.weights.pulling import MANIFEST
from slime.weights.updater import NamedTensors, WeightUpdater


class DeltaWeightUpdater(WeightUpdater):
    """Keeps a local checkpoint in step with the trainer, and writes how to follow it.

    The local checkpoint is what the next delta is taken against: it lies on the disk, not in the
    trainer's memory. Where it is not whole (the first update, or one that failed in the middle),
    the update is a full one. A version that it holds already is not written again: an engine is
    caught up.

    Attributes:
        written_bytes: Size of the last update's files.
    """

    def __init__(
        self, args: Namespace, root: str | Path, local: str | Path, **options: Any
    ) -> None:
        super().__init__(**options)
        self._args, self._root = args, Path(root)
        self._local = LocalCheckpoint(local)
        self._run = uuid.uuid4().hex  # the same version of another run has other weights
        self._partial = self._root
        self._manifest: dict[str, Any] = {}
        self._is_there = False
        self._files = 0
        self.written_bytes = 0

    def _begin(self, calls: EngineCalls, version: int) -> None:
        base = self._local.version if self._local.run == self._run else None
        self._is_there = base == version
        self._start_folder(version)
        self._manifest = {
            "version": version,
            "run": self._run,
            "base": base,
            "encoding": self._args.update_weight_delta_encoding,
            "checksum": self._args.update_weight_delta_checksum,
            "tensors": {},
        }
        self._files = 0
        if base is None:
            self._local.clear()
            link_assets(Path(self._args.hf_checkpoint), self._local.folder)
        elif not self._is_there:
            self._local.begin()

    def _start_folder(self, version: int) -> None:
        self._partial = self._root / f".weights_{version:08d}.partial"
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)

    def _send(self, calls: EngineCalls, bucket: NamedTensors) -> None:
        if self._is_there:
            return
        if self._manifest["base"] is None:
            self._local.add(bucket)
            return
        changes = {}
        for name, tensor in bucket:
            new, itemsize = as_bytes(tensor), tensor.element_size()
            old = self._local.bytes_of(name)
            change = encode(new, old, itemsize, self._manifest["encoding"])
            self._manifest["tensors"][name] = {
                "itemsize": itemsize,
                "checksum": checksum(self._manifest["checksum"], new),
            }
            if change:
                changes[name] = torch.frombuffer(bytearray(change), dtype=torch.uint8)
                old[:] = new
        if changes:
            self._files += 1
            save_file(changes, self._partial / f"delta-{self._files:05d}.safetensors")

    def _end(self, calls: EngineCalls, version: int) -> None:
        if not self._is_there:
            if self._manifest["base"] is None:
                self._local.seal()
            self._local.complete(version, self._run)
            self._publish(version)
        has_it = calls.each(lambda engine: self._load(calls, engine, version))
        if not all(has_it.values()):
            self._start_folder(version)
            self._manifest |= {"base": None, "tensors": {}}
            self._publish(version)
            calls.each(lambda e: has_it[e.url] or self._load(calls, e, version, whole=True))
        if not self._args.update_weight_disk_keep_files and not calls.failed:
            remove_older(self._root, version)

    def _load(
        self, calls: EngineCalls, engine: EngineAddress, version: int, whole: bool = False
    ) -> bool:
        """False if the engine's own copy cannot follow the deltas, and needs the `whole` version.

        Raises:
            OSError: it did not load the version.
        """
        body = {"folder": str(self._root.absolute()), "version": version}
        try:
            calls.request(engine.url, "POST", "/pull_weights", orjson.dumps(body))
        except Refused as error:
            if error.status == HTTPStatus.NOT_FOUND:  # it has no copy, and reads ours
                body = {"model_path": str(self._local.folder), "flush_cache": True}
                calls.request(engine.url, "POST", "/update_weights_from_disk", orjson.dumps(body))
            elif error.status == HTTPStatus.CONFLICT and not whole:
                return False
            else:
                raise
        return True

    def _publish(self, version: int) -> None:
        """Give the delta its name; a full update is a copy of the local checkpoint."""
        if self._manifest["base"] is None:
            for file in self._local.folder.iterdir():
                shutil.copyfile(file, self._partial / file.name)
        (self._partial / MANIFEST).write_text(json.dumps(self._manifest))
        self.written_bytes = sum(file.stat().st_size for file in self._partial.iterdir())
        folder = version_folder(self._root, version)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(self._partial, folder)
        after_write(self._args, folder)

    def _abandon(self, calls: EngineCalls, version: int | None) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)  # no engine has seen anything of it


def as_bytes(tensor: torch.Tensor) -> Bytes:
    """The bytes of a tensor, flat; no copy if it is contiguous in host memory."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    content: Bytes = flat.view(torch.uint8).numpy()
    return content
