"""A step that is not finite: stop or skip, and files that run it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.usefixtures("single_rank")


def _poisoned(rollout_of):
    """A rollout of two steps; the reward of sample 5, in the second, is NaN."""
    rollout = rollout_of(7)
    rollout["sample_indices"] = list(range(100, 108))
    rollout["rewards"][5] = float("nan")
    return rollout


def test_a_skipped_step_leaves_no_trace(hf_model, args_for, rollout_of, tmp_path, capsys):
    from slime.trainer.trainer import Trainer

    options = {"no_check_for_nan_in_loss_and_grad": True, "run_dir": tmp_path}
    trainer = Trainer(args_for(hf_model(), **options))
    trainer.load()
    metrics = trainer.train(3, _poisoned(rollout_of))
    assert metrics["skipped_steps"] == metrics["steps"] == 1
    assert np.isfinite(metrics["loss"])
    said = capsys.readouterr().out
    assert "rollout 3, step 1, samples [104, 105, 106, 107]" in said
    alone = Trainer(args_for(hf_model()))
    alone.load()
    first = rollout_of(7)
    first.update(num_microbatches=[2], micro_batch_indices=first["micro_batch_indices"][:2])
    alone.train(3, first)
    for left, right in zip(trainer.model[0].parameters(), alone.model[0].parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-7)
    everything = _poisoned(rollout_of)
    everything["rewards"] = [float("nan")] * 8
    metrics = trainer.train(4, everything)
    assert metrics["skipped_steps"] == 2
    assert metrics["steps"] == 0
    assert metrics["lr"] > 0
    assert len(list((tmp_path / "non_finite").iterdir())) == 3


def test_a_dump_runs_again_and_names_the_sample(hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer.optimizer import NonFiniteError
    from slime.trainer.replay_step import replay
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args_for(hf_model(), run_dir=tmp_path, rollout_top_p=1.0))
    trainer.load()
    with pytest.raises(NonFiniteError, match=r"replay_step \S+actor_3_step_1") as error:
        trainer.train(3, _poisoned(rollout_of))
    folder = tmp_path / "non_finite" / "actor_3_step_1"
    assert str(folder) in str(error.value)
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
    told = replay(folder, 0)
    assert told["bad_samples"] == [105]
    assert np.isnan(told["loss"])
    assert any("linear_fc1" in name for name in told["bad_gradients"])


def test_a_healthy_step_replays_to_the_same_numbers(hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer import step_dump
    from slime.trainer.replay_step import replay
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args_for(hf_model(), use_tis=True))
    trainer.load()
    trainer.prepare(rollout_of(2, steps=1))
    step_dump.write(tmp_path, trainer.args, "actor", trainer.model, trainer._prepared, 0)
    metrics = trainer.train_prepared(0)
    told = replay(tmp_path, 0)
    assert told["loss"] == metrics["loss"]
    assert told["grad_norm"] == pytest.approx(metrics["grad_norm"], rel=1e-7)
    assert told["bad_samples"] == told["bad_gradients"] == []


def test_the_command_line_runs_a_dump(hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer import step_dump
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args_for(hf_model(), loss_type="sft_loss"))
    trainer.load()
    trainer.prepare(rollout_of(2, steps=1))
    step_dump.write(tmp_path, trainer.args, "actor", trainer.model, trainer._prepared, 0)
    run = subprocess.run(
        [sys.executable, "-m", "slime.trainer.replay_step", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("rank 0: ")]
    told = json.loads(line.removeprefix("rank 0: "))
    assert told["loss"] == pytest.approx(trainer.train_prepared(0)["loss"], rel=1e-6)
