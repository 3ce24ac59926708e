"""Files of checkpoints: killed at every file operation, damaged in every way."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from slime.trainer import checkpoint_files as files

_OPERATIONS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")


def _save(root: Path, iteration: int, content: str) -> None:
    partial = files.start_partial(root, iteration)
    for name in ("__0_0.distcp", "__1_0.distcp", "common.pt", "metadata.json"):
        (partial / name).write_text(content)
    files.write_manifest(partial, {}, root / "rollout" / f"data_source_{iteration:07d}.json")
    files.put_in_place(root, iteration)


def _killed_at(root: Path, operation: int, iteration: int) -> bool:
    """Save in a child that is killed before its n-th file operation; False if it got to the end."""
    pid = os.fork()
    if pid == 0:
        left = operation

        def hook(event: str, _: tuple) -> None:
            nonlocal left
            if event in _OPERATIONS:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        _save(root, iteration, "new")
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("iteration", [1, 2], ids=["over the old one", "after the old one"])
def test_killed_anywhere_one_whole_checkpoint_is_the_latest(iteration, tmp_path):
    killed, seen = 0, set()
    for operation in range(200):
        root = tmp_path / str(operation)
        _save(root, 1, "old")
        (files.iteration_dir(root, 1) / "notes.txt").write_text("somebody's")
        if not _killed_at(root, operation, iteration):
            break
        killed += 1
        files.repair(root)
        latest = files.latest_iteration(root)
        folder = files.iteration_dir(root, latest)
        assert list(files.damage(folder)) == []
        content = {(folder / name).read_text() for name in ("__0_0.distcp", "common.pt")}
        assert content in ({"old"}, {"new"})
        assert latest == 1 or content == {"new"}
        assert (files.iteration_dir(root, 1) / "notes.txt").read_text() == "somebody's"
        seen |= content
        _save(root, iteration, "again")  # over whatever the crash has left
        assert files.latest_iteration(root) == iteration
        assert not list(root.glob(".iter_*"))
    assert killed > 15 and seen == {"old", "new"}


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["__0_0.distcp", "common.pt", "../rollout/data_source_0000003.json"]
)
@pytest.mark.parametrize(
    ("harm", "message"),
    [(_truncate, "has 6 bytes, 7 were written"), (_flip, "other content")],
    ids=["truncated", "flipped"],
)
def test_a_changed_file_is_named(harm, message, name, tmp_path):
    beside = tmp_path / "rollout" / "data_source_0000003.json"
    beside.parent.mkdir()
    beside.write_text("content")
    _save(tmp_path, 3, "content")
    folder = files.iteration_dir(tmp_path, 3)
    assert list(files.damage(folder)) == []
    harm(folder / name)
    (problem,) = files.damage(folder)
    assert Path(name).name in problem and message in problem
    parts = [list(files.damage(folder, part, 3)) for part in range(3)]
    assert [found for part in parts for found in part] == [problem], (
        "the ranks together find what one finds"
    )


def test_a_missing_file_and_a_broken_manifest_are_named(tmp_path):
    _save(tmp_path, 3, "content")
    folder = files.iteration_dir(tmp_path, 3)
    (folder / "__1_0.distcp").unlink()
    assert list(files.damage(folder)) == [f"{folder / '__1_0.distcp'} is missing"]
    (folder / files.MANIFEST).write_text("{")
    assert "unreadable" in next(files.damage(folder))
    (folder / files.MANIFEST).unlink()
    assert list(files.damage(folder)) == [], "Megatron's own checkpoints have no manifest"


def test_the_previous_one_is_the_newest_that_is_complete(tmp_path):
    for iteration in (2, 10, 30):
        _save(tmp_path, iteration, "content")
    (files.iteration_dir(tmp_path, 20)).mkdir()
    found = [files.previous_iteration(tmp_path, before) for before in (None, 30, 10, 2)]
    assert found == [30, 10, 2, None]
