"""Saving in the background, on a full disk, and going on from damaged checkpoints."""

from __future__ import annotations

import resource
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.usefixtures("single_rank")
ROLLOUTS = 4


def _trainer(args):
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args)
    return trainer, trainer.load()


def _state(trainer) -> dict[str, torch.Tensor]:
    """Weights and Adam's moments."""
    state = {n: t.clone() for bucket in trainer.hf_weight_buckets(1 << 30) for n, t in bucket}
    for i, moments in enumerate(trainer.optimizer.chained_optimizers[0].optimizer.state.values()):
        state |= {f"{i}.{name}": value.clone() for name, value in moments.items()}
    return state


def _assert_same(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> None:
    assert got.keys() == want.keys()
    assert [name for name in want if not torch.equal(got[name], want[name])] == []


@pytest.mark.parametrize("options", [{}, {"use_distributed_optimizer": True, "async_save": True}])
def test_stopped_after_any_rollout_the_run_ends_as_the_unbroken_one(
    options, hf_model, args_for, rollout_of, tmp_path
):
    options = {**options, "save": str(tmp_path), "lr_decay_style": "cosine", "lr_decay_iters": 20}
    unbroken, _ = _trainer(args_for(hf_model(), **options))
    metrics = []
    for i in range(ROLLOUTS):
        metrics.append(unbroken.train(i, rollout_of(i)))
        unbroken.save(i)
    unbroken.finish_save()
    for stopped_after in range(ROLLOUTS - 1):
        torch.manual_seed(99)
        args = args_for(hf_model(), **options, load=str(tmp_path), ckpt_step=stopped_after)
        resumed, begin = _trainer(args)
        assert begin == stopped_after + 1 == resumed.weight_version
        for i in range(begin, ROLLOUTS):
            again = resumed.train(i, rollout_of(i))
            for key in ("loss", "grad_norm", "lr", "entropy"):
                assert again.get(key) == metrics[i].get(key), key
        _assert_same(_state(resumed), _state(unbroken))


@pytest.fixture
def slow_disk(monkeypatch):
    """An event: files are written once it is set."""
    from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

    write, may_write = FileSystemWriterAsync.write_preloaded_data, threading.Event()

    def wait_and_write(*args, **kwargs):
        assert may_write.wait(60)
        write(*args, **kwargs)

    monkeypatch.setattr(FileSystemWriterAsync, "write_preloaded_data", staticmethod(wait_and_write))
    yield may_write
    may_write.set()


def test_training_goes_on_while_a_checkpoint_is_written(
    hf_model, args_for, rollout_of, tmp_path, slow_disk
):
    options = {"save": str(tmp_path), "load": str(tmp_path), "lr": 1e-2}
    trainer, _ = _trainer(args_for(hf_model(), **options, async_save=True))
    slow_disk.set()
    trainer.train(0, rollout_of(0))
    trainer.save(0)
    trainer.finish_save()
    trainer.train(1, rollout_of(1))
    at_save = _state(trainer)
    slow_disk.clear()
    trainer.save(1)
    trainer.train(
        2, rollout_of(2)
    )  # the next rollout does not wait, and must not leak into the save
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    assert tracker.read_text() == "0\n"
    _, begin = _trainer(args_for(hf_model(), **options))
    assert begin == 1, "a crash now goes on from the old checkpoint"
    threading.Timer(0.2, slow_disk.set).start()
    trainer.save(2)  # waits for the one before
    assert int(tracker.read_text()) >= 1
    trainer.finish_save()
    assert tracker.read_text() == "2\n"
    restored, begin = _trainer(args_for(hf_model(), **options, ckpt_step=1))
    _assert_same(_state(restored), at_save)


def test_a_later_rollout_completes_the_save(hf_model, args_for, rollout_of, tmp_path):
    trainer, _ = _trainer(args_for(hf_model(), save=str(tmp_path), async_save=True))
    trainer.save(0)
    trainer.saver._pending[0].result()
    assert not (tmp_path / "latest_checkpointed_iteration.txt").exists()
    trainer.train(1, rollout_of(1))
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "0\n"


@pytest.fixture
def disk(request, tmp_path):
    """A folder, and a function that leaves room for so many bytes: a `limit` of each file's size,
    or a `full` file system."""
    if request.param == "limit":
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        yield tmp_path, lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(tmp_path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    ballast = tmp_path / "ballast"

    def leave(size):
        if size == resource.RLIM_INFINITY:
            ballast.unlink()
        else:
            ballast.write_bytes(bytes(shutil.disk_usage(tmp_path).free - size))

    yield tmp_path, leave
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("disk", "size"),
    [("limit", 1000), ("limit", 30_000), ("limit", 200_000), ("full", 30_000)],
    indirect=["disk"],
)
@pytest.mark.parametrize("async_save", [False, True])
def test_a_full_disk_leaves_the_old_checkpoint_and_is_named(
    disk, size, async_save, hf_model, args_for, rollout_of
):
    from slime.trainer.hf_to_megatron.common import CheckpointError

    folder, leave_room_for = disk
    options = {"save": str(folder), "load": str(folder), "async_save": async_save}
    trainer, _ = _trainer(args_for(hf_model(), **options))
    trainer.train(0, rollout_of(0))
    trainer.save(0)
    trainer.finish_save()
    old = _state(trainer)
    trainer.train(1, rollout_of(1))
    leave_room_for(size)
    with pytest.raises(CheckpointError, match="rollout 1 could not be .* rollout 0 is whole"):
        trainer.save(1)
        trainer.finish_save()
    leave_room_for(resource.RLIM_INFINITY)
    assert {p.name for p in folder.iterdir()} == {
        "iter_0000000",
        "latest_checkpointed_iteration.txt",
    }
    restored, begin = _trainer(args_for(hf_model(), **options))
    assert begin == 1
    _assert_same(_state(restored), old)
    restored.train(1, rollout_of(1))
    restored.save(1)  # there is space again
    restored.finish_save()
    assert _trainer(args_for(hf_model(), **options))[1] == 2


def test_a_damaged_checkpoint_is_refused_and_the_one_before_used_if_asked(
    hf_model, args_for, rollout_of, tmp_path
):
    from slime.trainer.hf_to_megatron.common import CheckpointError

    options = {"save": str(tmp_path), "load": str(tmp_path)}
    trainer, _ = _trainer(args_for(hf_model(), save=str(tmp_path)))
    states = []
    for i in range(3):
        trainer.train(i, rollout_of(i))
        trainer.save(i)
        states.append(_state(trainer))
    data_file = tmp_path / "iter_0000002" / "__0_0.distcp"
    with data_file.open("r+b") as file:
        file.seek(data_file.stat().st_size // 2)
        file.write(b"\xff" * 8)
    (tmp_path / "iter_0000001" / "common.pt").unlink()
    with pytest.raises(CheckpointError, match="__0_0.distcp has other content.*rollout 0 is whole"):
        _trainer(args_for(hf_model(), **options))
    restored, begin = _trainer(args_for(hf_model(), **options, use_previous_checkpoint=True))
    assert begin == 1
    _assert_same(_state(restored), states[0])
    (tmp_path / "iter_0000000" / "__0_0.distcp").unlink()
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        _trainer(args_for(hf_model(), **options, use_previous_checkpoint=True))


def test_a_restarted_trainer_goes_on_where_it_ended(hf_model, args_for, rollout_of, tmp_path):
    unbroken, _ = _trainer(args_for(hf_model(), save=str(tmp_path / "save"), async_save=True))
    restarted = unbroken
    for i in range(3):
        restarted.train(i, rollout_of(i))
        restarted.save(i)
        restarted.save_for_restart(str(tmp_path / "released"))
        restarted, _ = _trainer(args_for(hf_model(), load=str(tmp_path / "released")))
        restarted.args.save = str(tmp_path / "save")
        assert restarted.weight_version == i + 1
    whole, _ = _trainer(args_for(hf_model()))
    for i in range(3):
        whole.train(i, rollout_of(i))
    _assert_same(_state(restarted), _state(whole))
    assert (tmp_path / "save" / "latest_checkpointed_iteration.txt").read_text() == "2\n"


@pytest.mark.parametrize("options", [{}, {"use_distributed_optimizer": True}, {"bf16": True}])
def test_a_checkpoint_from_before_the_first_step(options, hf_model, args_for, rollout_of, tmp_path):
    args = args_for(hf_model(), **options, save=str(tmp_path), load=str(tmp_path))
    fresh, _ = _trainer(args)
    fresh.save_for_restart(str(tmp_path))
    resumed, _ = _trainer(args)
    for trainer in (fresh, resumed):
        trainer.train(0, rollout_of(0))
    _assert_same(_state(resumed), _state(fresh))


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("saved", ["absent", None, False, True])
def test_how_adam_runs_is_this_machines_choice_not_the_checkpoints(
    saved, distributed, hf_model, args_for, rollout_of, tmp_path
):
    options = {"save": str(tmp_path), "load": str(tmp_path), "lr": 1e-2}
    args = args_for(hf_model(), **options, use_distributed_optimizer=distributed)
    trainer, _ = _trainer(args)
    trainer.train(0, rollout_of(0))
    trainer.save(0)
    _change_saved_groups(tmp_path / "iter_0000000", saved)
    resumed, begin = _trainer(args)
    assert begin == 1
    (adam,) = [part.optimizer for part in resumed.optimizer.chained_optimizers]
    assert [group["fused"] for group in adam.param_groups] == [True] * len(adam.param_groups)
    for one in (trainer, resumed):
        one.train(1, rollout_of(1))
    _assert_same(_state(resumed), _state(trainer))


def _change_saved_groups(folder: Path, fused: object) -> None:
    """As if a trainer with another `fused` (or an older one, without it) had saved."""
    common = torch.load(folder / "common.pt", weights_only=False)
    groups = list(_groups(common["optimizer"]))
    assert groups
    for group in groups:
        group.pop("fused", None)
        if fused != "absent":
            group["fused"] = fused
    torch.save(common, folder / "common.pt")
    (folder / "manifest.json").unlink()


def _groups(content: object) -> Iterator[dict]:
    if isinstance(content, dict):
        yield from content.get("param_groups", ())
        for value in content.values():
            yield from _groups(value)
