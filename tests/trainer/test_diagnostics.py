"""Dumps of train data, profiles, and the checks of --ci-test."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.usefixtures("single_rank")


def _trainer(args):
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args)
    trainer.load()
    return trainer


def test_a_dump_has_what_was_trained_on(hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer.train_data_dump import load_debug_train_data

    args = args_for(hf_model(), dump_details=str(tmp_path))
    trainer, rollout = _trainer(args), rollout_of(0)
    trainer.prepare(rollout)
    advantages = [part.clone() for part in trainer._prepared["advantages"]]
    trainer.train_prepared(3)
    (path,) = (tmp_path / "train_data").iterdir()
    assert path.name == "3_0"
    data = load_debug_train_data(path)
    for i, ids in enumerate(rollout["tokens"]):
        assert np.array_equal(data["tokens"][i], ids)
        assert torch.equal(data["advantages"][i], advantages[i])
        assert len(data["log_probs"][i]) == rollout["response_lengths"][i]
    for key in ("rewards", "total_lengths", "micro_batch_indices", "global_batch_sizes"):
        assert data[key] == rollout[key]


def test_parts_are_gathered_on_all_and_kept_where_wanted():
    from slime.trainer.train_data_dump import restore_context_parallel_fields_to_cpu

    data = {
        "total_lengths": [5, 7],
        "response_lengths": [2, 4],
        "advantages": [torch.tensor([1.0]), torch.tensor([2.0, 3.0])],
        "rewards": [0.5, 1.0],
        "entropy": None,
    }
    asked = []

    def gather(part, total, response):
        asked.append((len(part), total, response))
        return torch.cat([part, part])

    assert restore_context_parallel_fields_to_cpu(data, gather, keep_restored=False) is None
    restored = restore_context_parallel_fields_to_cpu(data, gather, keep_restored=True)
    assert asked == [(1, 5, 2), (2, 7, 4)] * 2
    assert [part.tolist() for part in restored["advantages"]] == [[1.0, 1.0], [2.0, 3.0, 2.0, 3.0]]
    assert restored["rewards"] == [0.5, 1.0] and len(data["advantages"][0]) == 1


@pytest.mark.parametrize(
    ("targets", "files"),
    [
        (["train_overall", "train_actor"], ["actor_train_overall_1_rank0.json"]),
        (
            ["train_actor", "train_log_probs"],
            ["actor_train_actor_1_rank0.json", "actor_train_log_probs_1_rank0.json"],
        ),
    ],
)
def test_a_profile_of_the_rollouts_asked_for(
    targets, files, hf_model, args_for, rollout_of, tmp_path
):
    options = {"profile": True, "profile_step_start": 1, "profile_step_end": 2}
    args = args_for(hf_model(), **options, profile_target=targets, run_dir=str(tmp_path))
    trainer = _trainer(args)
    for i in range(3):
        trainer.train(i, rollout_of(i))
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == files
    trace = json.loads((tmp_path / "profile" / files[0]).read_text())
    names = {event.get("name") for event in trace["traceEvents"]}
    assert "aten::mm" in names or "aten::addmm" in names
    assert "slime/train" in names


def test_memray_records_the_rollouts_asked_for(hf_model, args_for, rollout_of, tmp_path):
    import memray

    options = {"memory_recorder": "memray", "memory_snapshot_num_steps": 2}
    trainer = _trainer(args_for(hf_model(), **options, memory_snapshot_dir=str(tmp_path)))
    (file,) = tmp_path.iterdir()
    assert file.name == "snapshot_actor_rank0.bin"
    trainer.train(0, rollout_of(0))
    with pytest.raises(RuntimeError, match="one Tracker"):  # still at it
        memray.Tracker(tmp_path / "other.bin").__enter__()
    trainer.train(1, rollout_of(1))
    with memray.FileReader(file) as reader:
        assert reader.metadata.peak_memory > 2 * trainer.model[0].buffers[0].numel
        records = reader.get_high_watermark_allocation_records()
        functions = {name for record in records for name, _, _ in record.stack_trace()}
    # from the first weight on, and up to the step that needs most
    assert functions >= {"build_layer", "forward_backward"}
    size = file.stat().st_size
    trainer.train(2, rollout_of(2))
    assert file.stat().st_size == size


def test_gradient_norms_are_saved_and_compared(hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer.ci_checks import CheckFailed

    path = tmp_path / "norms" / "{role}_{rollout_id}.json"
    saving = _trainer(args_for(hf_model(), ci_save_grad_norm=str(path)))
    norm = saving.train(0, rollout_of(0))["grad_norm"]
    file = tmp_path / "norms" / "actor_0.json"
    norms = json.loads(file.read_text())
    assert sum(norms.values()) / 2 == pytest.approx(norm)
    args = args_for(hf_model(), ci_load_grad_norm=str(path))
    assert _trainer(args).train(0, rollout_of(0))["grad_norm"] == norm
    norms["actor, rollout 0, step 1"] *= 1.1
    file.write_text(json.dumps(norms))
    with pytest.raises(CheckFailed, match=r"the gradient norm is .* \(actor, rollout 0, step 1\)"):
        _trainer(args).train(0, rollout_of(0))
    with pytest.raises(CheckFailed, match="has no gradient norm of actor, rollout 1, step 0"):
        _trainer(args).train(1, rollout_of(0))


@pytest.mark.parametrize(
    ("metrics", "rollout_id", "step", "message"),
    [
        ({"train_rollout_logprob_abs_diff": 0.2}, 4, 1, "is 0.2, at most 0.1"),
        ({"ppo_kl": 0.01}, 4, 0, "ppo_kl"),
        ({"ppo_kl": 0.01}, 4, 1, None),
        ({"kl": -0.01}, 0, 0, "kl is -0.01"),
        ({"kl": 0.01}, 1, 0, None),
        ({}, 0, 0, None),
    ],
)
def test_numbers_that_must_hold(metrics, rollout_id, step, message, hf_model, args_for):
    from slime.trainer.ci_checks import CheckFailed, CiChecks

    args = args_for(hf_model(), ci_test=True)
    if message:
        with pytest.raises(CheckFailed, match=message):
            CiChecks(args).after_step(rollout_id, step, metrics)
    else:
        CiChecks(args).after_step(rollout_id, step, metrics)
    CiChecks(args, "critic").after_step(rollout_id, step, metrics)
