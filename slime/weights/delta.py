"""Weights by what changed: a delta is written to a shared folder, and brings a local checkpoint
beside the engines to the next version; the engines load that.

A delta is a folder: `manifest.json` and compressed changes in `delta-*.safetensors`. The checksum
of every resulting tensor travels along, so a wrong base or a damaged file is noticed before an
engine sees it.
"""

import json
import os
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from slime.weights.delta_codec import Bytes, apply, checksum, encode
from slime.weights.disk import after_write, link_assets, remove_older, version_folder
from slime.weights.engine_calls import EngineCalls
from slime.weights.errors import WeightUpdateError
from slime.weights.local_checkpoint import LocalCheckpoint
from slime.weights.updater import NamedTensors, WeightUpdater

_MANIFEST = "manifest.json"


class DeltaWeightUpdater(WeightUpdater):
    """Keeps a local checkpoint in step with the trainer, and writes how to follow it.

    The local checkpoint is what the next delta is taken against: it lies on the disk, not in the
    trainer's memory. Where it is not whole (the first update, or one that failed in the middle),
    the update is a full one.

    Attributes:
        written_bytes: Size of the last update's files.
    """

    def __init__(
        self, args: Namespace, root: str | Path, local: str | Path, **options: Any
    ) -> None:
        super().__init__(**options)
        self._args, self._root = args, Path(root)
        self._local = LocalCheckpoint(local)
        self._partial = self._root
        self._manifest: dict[str, Any] = {}
        self._files = 0
        self.written_bytes = 0

    def _begin(self, calls: EngineCalls, version: int) -> None:
        self._partial = self._root / f".weights_{version:08d}.partial"
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        self._manifest = {
            "version": version,
            "base": self._local.version,
            "encoding": self._args.update_weight_delta_encoding,
            "checksum": self._args.update_weight_delta_checksum,
            "tensors": {},
        }
        self._files = 0
        if self._local.version is None:
            self._local.clear()
            link_assets(Path(self._args.hf_checkpoint), self._local.folder)
        else:
            self._local.begin()

    def _send(self, calls: EngineCalls, bucket: NamedTensors) -> None:
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
        if self._manifest["base"] is None:
            self._local.seal()
        self._local.complete(version)
        self._publish(version)
        body = {"model_path": str(self._local.folder), "flush_cache": True}
        calls.post("/update_weights_from_disk", body)
        if not self._args.update_weight_disk_keep_files and not calls.failed:
            remove_older(self._root, version)

    def _publish(self, version: int) -> None:
        """Give the delta its name; a full update is a copy of the local checkpoint."""
        if self._manifest["base"] is None:
            for file in self._local.folder.iterdir():
                shutil.copyfile(file, self._partial / file.name)
        (self._partial / _MANIFEST).write_text(json.dumps(self._manifest))
        self.written_bytes = sum(file.stat().st_size for file in self._partial.iterdir())
        folder = version_folder(self._root, version)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(self._partial, folder)
        after_write(self._args, folder)

    def _abandon(self, calls: EngineCalls, version: int | None) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)  # no engine has seen anything of it


def pull(folder: str | Path, local: LocalCheckpoint) -> int:
    """Bring a local checkpoint to the version that lies in `folder`; returns the version.

    For engines on other machines than the trainer: to be run there before they load the local
    checkpoint. A checkpoint that has the version already is left alone.

    Raises:
        WeightUpdateError: the delta is for another version than the local one, or a tensor has the
            wrong checksum afterwards. The local checkpoint is then incomplete, and only a full
            update helps it.
    """
    folder = Path(folder)
    manifest = json.loads((folder / _MANIFEST).read_text())
    version, base = int(manifest["version"]), manifest["base"]
    if local.version == version:
        return version
    if base is None:
        _copy_all(folder, local)
    elif local.version != base:
        raise WeightUpdateError(
            f"the delta in {folder} leads from weight version {base} to {version}, but "
            f"{local.folder} has {local.version}; send a full update"
        )
    else:
        local.begin()
        _apply_all(folder, manifest, local)
    local.complete(version)
    return version


def _copy_all(folder: Path, local: LocalCheckpoint) -> None:
    local.clear()
    for file in folder.iterdir():
        if file.name not in (_MANIFEST, "weight_version"):
            shutil.copyfile(file, local.folder / file.name)
    local.seal()


def _apply_all(folder: Path, manifest: dict[str, Any], local: LocalCheckpoint) -> None:
    for file in sorted(folder.glob("delta-*.safetensors")):
        with safe_open(file, framework="numpy") as changes:
            for name in changes.keys():  # noqa: SIM118 - safe_open is no mapping
                itemsize = manifest["tensors"][name]["itemsize"]
                payload = changes.get_tensor(name).tobytes()
                try:
                    apply(payload, local.bytes_of(name), itemsize, manifest["encoding"])
                except ValueError as error:
                    raise WeightUpdateError(f"{file}: {name}: {error}") from error
    for name, entry in manifest["tensors"].items():
        if checksum(manifest["checksum"], local.bytes_of(name)) != entry["checksum"]:
            raise WeightUpdateError(
                f"{name} has the wrong {manifest['checksum']} checksum after {folder}; the local "
                f"checkpoint {local.folder} must be sent whole"
            )


def as_bytes(tensor: torch.Tensor) -> Bytes:
    """The bytes of a tensor, flat; no copy if it is contiguous in host memory."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    content: Bytes = flat.view(torch.uint8).numpy()
    return content
