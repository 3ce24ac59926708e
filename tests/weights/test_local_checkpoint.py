"""Deltas on disk: two checkpoints that follow the same trainer hold the same bytes."""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slime.weights.delta import DeltaWeightUpdater
from slime.weights.errors import WeightUpdateError
from slime.weights.local_checkpoint import LocalCheckpoint
from slime.weights.pulling import pull, pull_version


@pytest.fixture
def args(tmp_path: Path) -> Namespace:
    checkpoint = tmp_path / "hf"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    return Namespace(
        hf_checkpoint=str(checkpoint),
        update_weight_delta_encoding="xor",
        update_weight_delta_checksum="xxh3-128",
        update_weight_disk_keep_files=True,
        custom_update_weight_post_write_path=None,
    )


def tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = {f"layer.{i}": torch.randn(7, 5, generator=generator) for i in range(4)}
    return made | {"half": torch.randn(9, generator=generator).to(torch.bfloat16)}


def sent(args: Namespace, tmp_path: Path, *seeds: int) -> DeltaWeightUpdater:
    updater = DeltaWeightUpdater(args, tmp_path / "shared", tmp_path / "local")
    for version, seed in enumerate(seeds):
        named = list(tensors(seed).items())
        updater.update([], [named[:2], named[2:]], version)
    return updater


def content(folder: Path) -> dict[str, torch.Tensor]:
    return {k: v for file in folder.glob("*.safetensors") for k, v in load_file(file).items()}


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_a_follower_holds_what_the_trainer_sent(args, tmp_path, encoding):
    args.update_weight_delta_encoding = encoding
    sent(args, tmp_path, 1, 2, 3)
    follower = LocalCheckpoint(tmp_path / "far")
    for version, seed in enumerate((1, 2, 3)):
        assert pull(tmp_path / "shared" / f"weights_{version:08d}", follower) == version
        expected = tensors(seed)
        found = content(tmp_path / "far")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert all(torch.equal(content(tmp_path / "local")[n], t) for n, t in tensors(3).items())
    index = json.loads((tmp_path / "far" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == tensors(0).keys()
    assert (tmp_path / "far" / "config.json").exists()


def test_a_follower_that_missed_a_version_is_refused_and_keeps_what_it_has(args, tmp_path):
    sent(args, tmp_path, 1, 2, 3)
    follower = LocalCheckpoint(tmp_path / "far")
    pull(tmp_path / "shared" / "weights_00000000", follower)
    with pytest.raises(WeightUpdateError, match="from weight version 1 to 2, but .* has 0"):
        pull(tmp_path / "shared" / "weights_00000002", follower)
    assert follower.version == 0


def test_a_follower_takes_as_many_deltas_as_it_needs(args, tmp_path):
    sent(args, tmp_path, 1, 2, 3)
    for first in (0, 1, 2):
        far = tmp_path / f"far{first}"
        pull_version(tmp_path / "shared", first, far)
        assert pull_version(tmp_path / "shared", 2, far).version == 2
        assert all(torch.equal(content(far)[n], t) for n, t in tensors(3).items())


def test_a_follower_whose_deltas_are_gone_keeps_what_it_has(args, tmp_path):
    sent(args, tmp_path, 1, 2, 3)
    pull_version(tmp_path / "shared", 0, tmp_path / "far")
    for version in (0, 1):
        shutil.rmtree(tmp_path / "shared" / f"weights_{version:08d}")
    with pytest.raises(WeightUpdateError, match="has weight version 0; .*weights_00000001.*"):
        pull_version(tmp_path / "shared", 2, tmp_path / "far")
    assert LocalCheckpoint(tmp_path / "far").version == 0


def test_the_same_number_of_another_run_is_another_version(args, tmp_path):
    sent(args, tmp_path, 1)
    pull_version(tmp_path / "shared", 0, tmp_path / "far")
    sent(args, tmp_path, 4)
    pull_version(tmp_path / "shared", 0, tmp_path / "far")
    assert all(torch.equal(content(tmp_path / "far")[n], t) for n, t in tensors(4).items())


def test_a_version_that_was_sent_is_not_written_again(args, tmp_path):
    updater = sent(args, tmp_path, 1, 2)
    folder = tmp_path / "shared" / "weights_00000001"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    updater.update([], [list(tensors(2).items())], 1)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_damaged_delta_or_base_is_noticed(args, tmp_path):
    sent(args, tmp_path, 1, 2)
    follower = LocalCheckpoint(tmp_path / "far")
    pull(tmp_path / "shared" / "weights_00000000", follower)
    follower.bytes_of("layer.0")[3] ^= 1  # a bit flips on the disk
    with pytest.raises(WeightUpdateError, match="layer.0 has the wrong xxh3-128 checksum"):
        pull(tmp_path / "shared" / "weights_00000001", follower)
    assert LocalCheckpoint(tmp_path / "far").version is None


def test_after_a_failure_in_the_middle_the_next_update_is_whole(args, tmp_path):
    updater = sent(args, tmp_path, 1, 2)
    named = list(tensors(3).items())

    def broken():
        yield named[:2]
        raise RuntimeError("the trainer failed")

    with pytest.raises(RuntimeError):
        updater.update([], broken(), 2)
    assert not (tmp_path / "shared" / "weights_00000002").exists()
    assert LocalCheckpoint(tmp_path / "local").version is None
    updater.update([], [named], 3)
    manifest = json.loads((tmp_path / "shared" / "weights_00000003" / "manifest.json").read_text())
    assert manifest["base"] is None
    assert all(torch.equal(content(tmp_path / "local")[n], t) for n, t in tensors(3).items())
