"""The files of a checkpoint: whole or not there, and checked before anything is read from them.

`<root>/iter_0000019/` is written as `.iter_0000019.partial`, with a manifest of sizes and
checksums, and renamed when complete; then `latest_checkpointed_iteration.txt` is replaced. A crash
at any moment leaves the checkpoint that this file names.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

from slime.trainer.hf_to_megatron.common import CheckpointError

TRACKER = "latest_checkpointed_iteration.txt"
MANIFEST = "manifest.json"
_OURS = (".distcp", ".metadata", "common.pt", "metadata.json", MANIFEST)
_CHUNK = 1 << 22
Checksum = tuple[int, int]


def iteration_dir(root: str | Path, iteration: int) -> Path:
    """The folder of one checkpoint."""
    return Path(root) / f"iter_{iteration:07d}"


def partial_dir(root: str | Path, iteration: int) -> Path:
    """Where that checkpoint is written before it is complete."""
    return Path(root) / f".iter_{iteration:07d}.partial"


def latest_iteration(root: str | Path | None, step: int | None = None) -> int | None:
    """The iteration the tracker file names (or ``step``); None where there is no checkpoint.

    Raises:
        CheckpointError: the tracker is unreadable or the checkpoint is not complete.
    """
    if root is None or not (Path(root) / TRACKER).is_file():
        return None
    text = str(step) if step is not None else (Path(root) / TRACKER).read_text().strip()
    if not text.isdigit():
        raise CheckpointError(f"{Path(root) / TRACKER} holds {text!r}, not an iteration")
    folder = iteration_dir(root, int(text))
    if not (folder / "metadata.json").is_file():
        raise CheckpointError(f"{folder} is not a complete checkpoint (no metadata.json)")
    return int(text)


def previous_iteration(root: str | Path, before: int | None = None) -> int | None:
    """The newest complete folder, older than ``before``; None where there is none."""
    found = [int(path.parent.name[5:]) for path in Path(root).glob("iter_*/metadata.json")]
    return max((i for i in found if before is None or i < before), default=None)


def checksum(path: Path) -> Checksum:
    """Size in bytes and CRC-32 of a file."""
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return size, crc


def write_manifest(folder: Path, known: dict[str, Checksum], beside: Path) -> None:
    """Name every file of ``folder`` and ``beside`` (the data source's, where it exists).

    ``known`` are the checksums that the ranks made of what they wrote.
    """
    files = {path.name: known.get(path.name) or checksum(path) for path in folder.iterdir()}
    manifest = {"files": files, "beside": {}}
    if beside.is_file():
        manifest["beside"] = {str(beside.relative_to(folder.parent)): checksum(beside)}
    _write_and_flush(folder / MANIFEST, json.dumps(manifest, indent=1))
    fsync_folder(folder)


def damage(folder: Path, part: int = 0, of: int = 1) -> Iterator[str]:
    """What is wrong with a checkpoint, file by file; every ``of``-th file from ``part`` on is read.

    A checkpoint without a manifest (Megatron's own) is checked for completeness only.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        files = sorted(manifest["files"].items())
    except FileNotFoundError:
        if not (folder / "common.pt").is_file():
            yield f"{folder / 'common.pt'} is missing"
        return
    except (ValueError, KeyError, AttributeError) as error:
        yield f"{folder / MANIFEST} is unreadable ({error})"
        return
    for name, (size, crc) in files[part::of]:
        yield from _damage_of(folder / name, size, crc)
    for name, (size, crc) in manifest["beside"].items() if part == 0 else ():
        if (folder.parent / name).is_file():
            yield from _damage_of(folder.parent / name, size, crc)


def _damage_of(path: Path, size: int, crc: int) -> Iterator[str]:
    if not path.is_file():
        yield f"{path} is missing"
    elif path.stat().st_size != size:
        yield f"{path} has {path.stat().st_size} bytes, {size} were written"
    elif checksum(path)[1] != crc:
        yield f"{path} has other content than was written"


def start_partial(root: str | Path, iteration: int) -> Path:
    """An empty folder to write to; what crashed saves have left is removed."""
    repair(root)
    for left in Path(root).glob(".iter_*.partial"):
        shutil.rmtree(left)
    partial = partial_dir(root, iteration)
    partial.mkdir(parents=True)
    return partial


def discard_partial(root: str | Path, iteration: int) -> None:
    """Give back the space of a save that failed."""
    shutil.rmtree(partial_dir(root, iteration), ignore_errors=True)


def put_in_place(root: str | Path, iteration: int) -> None:
    """The partial checkpoint becomes the checkpoint, and the tracker names it.

    What others have put into a folder of that name stays.
    """
    final, old = iteration_dir(root, iteration), _replaced_dir(root, iteration)
    if final.exists():
        os.replace(final, old)
    os.replace(partial_dir(root, iteration), final)
    fsync_folder(final.parent)
    repair(root)
    temporary = Path(root) / f".{TRACKER}.partial"
    _write_and_flush(temporary, f"{iteration}\n")
    os.replace(temporary, Path(root) / TRACKER)
    fsync_folder(Path(root))


def repair(root: str | Path) -> None:
    """Finish a replacement of a checkpoint by one of the same iteration that a crash has cut."""
    for old in Path(root).glob(".iter_*.replaced"):
        final = old.with_name(old.name[1:].removesuffix(".replaced"))
        if not final.exists():
            os.replace(old, final)
            continue
        for entry in old.iterdir():
            if not entry.name.endswith(_OURS):
                os.replace(entry, final / entry.name)
        shutil.rmtree(old)


def _replaced_dir(root: str | Path, iteration: int) -> Path:
    return Path(root) / f".iter_{iteration:07d}.replaced"


def _write_and_flush(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def fsync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
