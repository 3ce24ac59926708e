"""A copy of the weights on another machine follows the trainer through the deltas in a folder that
both see.
"""

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open

from slime.weights.delta_codec import apply, checksum
from slime.weights.disk import version_folder
from slime.weights.errors import WeightUpdateError
from slime.weights.local_checkpoint import LocalCheckpoint

MANIFEST = "manifest.json"


def pull_version(root: str | Path, version: int, copy: str | Path) -> LocalCheckpoint:
    """Bring the checkpoint in the folder `copy` to a version, by as many deltas as that takes.

    Several processes of a machine may do so at once.

    Raises:
        WeightUpdateError: the deltas from its version on are not in `root` any more, or one of them
            does not lead where it should; only a whole version helps then.
    """
    with _alone(Path(copy)):
        local = LocalCheckpoint(copy)
        missing: list[Path] = []
        at: int | None = version
        while at is not None:
            folder = version_folder(root, at)
            if not (folder / MANIFEST).exists():
                raise WeightUpdateError(
                    f"{copy} has weight version {local.version}; {folder}, which it needs to reach "
                    f"{version}, is not there"
                )
            manifest = _read(folder)
            if _holds(local, at, manifest):
                break
            missing.append(folder)
            at = None if _holds(local, manifest["base"], manifest) else manifest["base"]
        for folder in reversed(missing):
            pull(folder, local)
    return local


def pull(folder: str | Path, local: LocalCheckpoint) -> int:
    """Bring a local checkpoint to the version that lies in `folder`; returns the version.

    A checkpoint that has the version already is left alone.

    Raises:
        WeightUpdateError: the delta is for another version than the local one, or a tensor has the
            wrong checksum afterwards. The local checkpoint is then incomplete, and only a full
            update helps it.
    """
    folder = Path(folder)
    manifest = _read(folder)
    version, base = int(manifest["version"]), manifest["base"]
    if _holds(local, version, manifest):
        return version
    if base is None:
        _copy_all(folder, local)
    elif not _holds(local, base, manifest):
        raise WeightUpdateError(
            f"the delta in {folder} leads from weight version {base} to {version}, but "
            f"{local.folder} has {local.version}; send a full update"
        )
    else:
        local.begin()
        _apply_all(folder, manifest, local)
    local.complete(version, manifest["run"])
    return version


def _read(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return manifest


def _holds(local: LocalCheckpoint, version: int | None, manifest: dict[str, Any]) -> bool:
    return version is not None and (local.version, local.run) == (version, manifest["run"])


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process of this machine changes the folder meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _copy_all(folder: Path, local: LocalCheckpoint) -> None:
    local.clear()
    for file in folder.iterdir():
        if file.name not in (MANIFEST, "weight_version"):
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
