"""Checkpoints and exports of one rank: exact resume, atomicity, what transformers reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.usefixtures("single_rank")


def _trainer(args):
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args)
    return trainer, trainer.load()


def _weights(trainer) -> dict[str, torch.Tensor]:
    return {n: t.clone() for bucket in trainer.hf_weight_buckets(1 << 30) for n, t in bucket}


@pytest.mark.parametrize("distributed_optimizer", [False, True])
def test_resume_equals_the_unbroken_run_bit_for_bit(
    distributed_optimizer, hf_model, args_for, rollout_of, tmp_path
):
    options = {
        "use_distributed_optimizer": distributed_optimizer,
        "lr_decay_style": "cosine",
        "lr_warmup_iters": 2,
        "lr_decay_iters": 20,
        "save": str(tmp_path / "ck"),
    }
    unbroken, begin = _trainer(args_for(hf_model(), **options))
    assert begin == 0 and unbroken.extra_state == {}
    for i in range(4):
        unbroken.train(i, rollout_of(i))
        if i == 1:
            unbroken.save(i)
            torch.manual_seed(123)  # a resumed run must not depend on what the generator did since
    resumed, begin = _trainer(args_for(hf_model(), **options, load=str(tmp_path / "ck")))
    assert begin == 2
    assert (
        resumed.extra_state == {"rollout_id": 1, "weight_version": 2}
        and resumed.weight_version == 2
    )
    for i in (2, 3):
        metrics = resumed.train(i, rollout_of(i))
    expected = _weights(unbroken)
    assert all(torch.equal(value, expected[name]) for name, value in _weights(resumed).items())
    assert metrics["lr"] == pytest.approx(unbroken.optimizer.param_groups[0]["lr"], rel=0.2)


def test_the_rollout_after_the_latest_checkpoint_is_next(hf_model, args_for, tmp_path):
    args = args_for(hf_model(), save=str(tmp_path), load=str(tmp_path))
    trainer, _ = _trainer(args)
    for rollout_id in (18, 19):
        trainer.save(rollout_id)
    assert _trainer(args)[1] == 20


def test_the_random_state_comes_back(hf_model, args_for, rollout_of, tmp_path):
    import random

    import numpy as np

    args = args_for(hf_model(), save=str(tmp_path), load=str(tmp_path))
    trainer, _ = _trainer(args)
    trainer.train(0, rollout_of(0))
    trainer.save(0)
    drawn = [torch.rand(1).item(), random.random(), float(np.random.rand())]
    _trainer(args)
    assert [torch.rand(1).item(), random.random(), float(np.random.rand())] == drawn


def test_a_crash_while_saving_leaves_the_old_checkpoint(
    hf_model, args_for, rollout_of, tmp_path, monkeypatch
):
    from slime.trainer import checkpoint_files

    args = args_for(hf_model(), save=str(tmp_path), load=str(tmp_path))
    trainer, _ = _trainer(args)
    trainer.train(0, rollout_of(0))
    trainer.save(0)
    old = _weights(trainer)
    trainer.train(1, rollout_of(1))

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint_files, "put_in_place", crash)
    with pytest.raises(KeyboardInterrupt):
        trainer.save(1)
    monkeypatch.undo()
    restored, begin = _trainer(args)
    assert begin == 1
    assert all(torch.equal(value, old[name]) for name, value in _weights(restored).items())
    restored.train(1, rollout_of(1))
    restored.save(1)  # over what the crash left
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "1\n"
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == [
        "iter_0000000",
        "iter_0000001",
    ]


def test_files_of_others_in_the_folder_stay(hf_model, args_for, rollout_of, tmp_path):
    folder = tmp_path / "iter_0000000"
    folder.mkdir()
    (folder / "data_source.json").write_text("{}")
    trainer, _ = _trainer(args_for(hf_model(), save=str(tmp_path)))
    trainer.train(0, rollout_of(0))
    for _ in range(2):
        trainer.save(0)
    assert (folder / "data_source.json").read_text() == "{}"
    assert (folder / "metadata.json").is_file()


def test_a_folder_without_a_checkpoint_is_a_fresh_start(hf_model, args_for, tmp_path):
    _, begin = _trainer(args_for(hf_model(), load=str(tmp_path)))
    assert begin == 0


@pytest.mark.parametrize(
    ("tracker", "message"), [("soon", "not an iteration"), ("3", "not a complete")]
)
def test_a_bad_checkpoint_is_named(tracker, message, hf_model, args_for, tmp_path):
    from slime.trainer.hf_to_megatron.common import CheckpointError

    (tmp_path / "latest_checkpointed_iteration.txt").write_text(tracker)
    with pytest.raises(CheckpointError, match=message):
        _trainer(args_for(hf_model(), load=str(tmp_path)))


def test_optimizer_state_of_another_kind_is_refused(hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer.hf_to_megatron.common import CheckpointError

    trainer, _ = _trainer(args_for(hf_model(), save=str(tmp_path)))
    trainer.train(0, rollout_of(0))
    trainer.save(0)
    other = {"load": str(tmp_path), "use_distributed_optimizer": True}
    with pytest.raises(CheckpointError, match="use_distributed_optimizer=False"):
        _trainer(args_for(hf_model(), **other))
    weights_only, begin = _trainer(args_for(hf_model(), **other, no_load_optim=True))
    expected = _weights(trainer)
    assert begin == 1
    assert all(torch.equal(value, expected[name]) for name, value in _weights(weights_only).items())


def test_a_state_without_the_experts_is_refused(hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer.hf_to_megatron.common import CheckpointError

    model = hf_model("qwen3_moe", False)
    frozen = {"freeze_params_name_list": [r"\.experts\."], "save": str(tmp_path)}
    trainer, _ = _trainer(args_for(model, **frozen))
    trainer.train(0, rollout_of(0))
    trainer.save(0)
    with pytest.raises(CheckpointError, match=r"1 optimizer\(s\), this run has 2: experts"):
        _trainer(args_for(model, load=str(tmp_path)))
    assert _trainer(args_for(model, load=str(tmp_path), **frozen))[1] == 1


def test_the_reference_stays_the_first_policy_over_a_resume(
    hf_model, args_for, rollout_of, tmp_path
):
    options = {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k3", "lr": 1e-2}
    unbroken, _ = _trainer(args_for(hf_model(), **options, save=str(tmp_path)))
    for i in range(2):
        unbroken.train(i, rollout_of(i))
    unbroken.save(1)
    resumed, _ = _trainer(args_for(hf_model(), **options, load=str(tmp_path)))
    kl = [trainer.train(2, rollout_of(2))["kl"] for trainer in (unbroken, resumed)]
    assert kl[0] == kl[1] > 1e-3


@pytest.mark.parametrize(("kind", "tied"), [("qwen3", True), ("llama", False)])
def test_transformers_loads_the_export(kind, tied, hf_model, args_for, rollout_of, tmp_path):
    import transformers

    source = hf_model(kind, tied)
    (source / "tokenizer_config.json").write_text('{"note": "copied"}')
    trainer, _ = _trainer(args_for(source))
    trainer.train(0, rollout_of(0))
    trainer.save_hf(tmp_path / "hf")
    assert (tmp_path / "hf" / "tokenizer_config.json").read_text() == '{"note": "copied"}'
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    state = loaded.state_dict()
    assert all(torch.equal(state[name], value) for name, value in _weights(trainer).items())


def test_a_large_export_is_sharded_with_an_index(hf_model, args_for, tmp_path):
    import transformers

    from slime.trainer.hf_checkpoint_saver import save_hf_model_direct_to_path

    trainer, _ = _trainer(args_for(hf_model("qwen2", False)))
    out = tmp_path / "hf"
    save_hf_model_direct_to_path(trainer.args, out, trainer.model, shard_bytes=40_000)
    files = sorted(p.name for p in out.glob("*.safetensors"))
    assert len(files) > 2 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert all((out / name).stat().st_size < 48_000 for name in files)
    index = json.loads((out / "model.safetensors.index.json").read_text())
    weights = _weights(trainer)
    assert index["weight_map"].keys() == weights.keys()
    assert index["metadata"]["total_size"] == sum(t.numel() * 4 for t in weights.values())
    state = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).state_dict()
    assert all(torch.equal(state[name], value) for name, value in weights.items())
    assert not [p for p in Path(tmp_path).iterdir() if p.name.startswith(".")]


def test_buckets_are_bounded(hf_model, args_for):
    trainer, _ = _trainer(args_for(hf_model()))
    buckets = list(trainer.hf_weight_buckets(30_000))
    sizes = [[t.numel() * t.element_size() for _, t in bucket] for bucket in buckets]
    assert all(len(s) == 1 or sum(s) <= 30_000 for s in sizes)
    assert len(buckets) > 3
