"""Teacher and old actor: log-probs under weights that are not the model's present ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.usefixtures("single_rank")


def _hf_log_probs(args, checkpoint, rollout):
    """Log-probs of every response by Hugging Face, at the rollout temperature."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    found = []
    for tokens, n in zip(rollout["tokens"], rollout["response_lengths"], strict=True):
        ids = torch.as_tensor(tokens)
        with torch.no_grad():
            logits = model(input_ids=ids[None]).logits[0, -n - 1 : -1]
        log_p = torch.log_softmax(logits / args.rollout_temperature, -1)
        found.append(log_p.gather(1, ids[-n:, None])[:, 0])
    return found


def _present_log_probs(trainer, rollout):
    """Log-probs under the trainer's own present weights."""
    from slime.trainer.forward_backward import forward_outputs
    from slime.trainer.response_log_probs import log_probs_function
    from slime.trainer.rollout_tensors import prepare

    data = prepare(trainer.args, rollout)
    return forward_outputs(trainer.args, trainer.model, data, log_probs_function)["log_probs"]


def _prepared(trainer, rollout):
    trainer.prepare(rollout)
    return trainer._prepared


def test_a_megatron_teacher_lowers_advantages_by_the_reverse_kl(hf_model, args_for, rollout_of):
    from slime.trainer.trainer import Trainer

    teacher, rollout = hf_model("qwen3", True, seed=7), rollout_of(1)
    args = args_for(
        hf_model(), use_opd=True, opd_type="megatron", opd_kl_coef=0.3, opd_teacher_load=teacher
    )
    trainer = Trainer(args)
    trainer.load()
    data = _prepared(trainer, rollout)
    student, taught = (_hf_log_probs(args, path, rollout) for path in (hf_model(), teacher))
    for i, mask in enumerate(rollout["loss_masks"]):
        gap = np.where(mask != 0, (student[i] - taught[i]).numpy(), 0.0)
        np.testing.assert_allclose(data["opd_kl"][i], gap, atol=1e-5)
        np.testing.assert_allclose(
            data["advantages"][i], rollout["rewards"][i] - 0.3 * gap, atol=1e-5
        )
    assert trainer.train_prepared(0)["opd_kl"] == pytest.approx(
        np.mean(
            [
                float((s - t) @ torch.as_tensor(m) / m.sum())
                for s, t, m in zip(student, taught, rollout["loss_masks"], strict=True)
            ]
        ),
        abs=1e-5,
    )


def test_the_engines_teacher_comes_with_the_samples(hf_model, args_for, rollout_of):
    from slime.trainer.trainer import Trainer

    rollout = rollout_of(1)
    random = np.random.default_rng(0)
    rollout["teacher_log_probs"] = [random.normal(-4, 1, n) for n in rollout["response_lengths"]]
    for mask, values in zip(rollout["loss_masks"], rollout["teacher_log_probs"], strict=True):
        values[mask == 0] = np.nan
    options = {"use_opd": True, "opd_type": "sglang", "use_rollout_logprobs": True}
    args = args_for(hf_model(), **options)
    trainer = Trainer(args)
    trainer.load()
    data = _prepared(trainer, rollout)
    assert "log_probs" not in data  # the engines' are the student's
    for i, mask in enumerate(rollout["loss_masks"]):
        gap = rollout["rollout_log_probs"][i] - rollout["teacher_log_probs"][i]
        want = rollout["rewards"][i] - np.where(mask != 0, gap, 0.0)
        np.testing.assert_allclose(data["advantages"][i], want, atol=1e-5)
    assert np.isfinite(trainer.train_prepared(0)["grad_norm"])


def test_old_log_probs_are_those_of_the_weights_that_sampled(hf_model, args_for, rollout_of):
    """Engines updated after rollouts 0 and 2: rollouts 1 and 2 were sampled by version 1."""
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args_for(hf_model(), keep_old_actor=True, lr=1e-2))
    trainer.load()
    rollouts = [rollout_of(seed, steps=1) for seed in range(3)]
    for rollout, version in zip(rollouts, (0, 1, 1), strict=True):
        rollout["weight_versions"] = [[str(version)] for _ in range(8)]
    trainer.policies.sent(0)
    assert "log_probs" not in _prepared(trainer, rollouts[0])  # the present weights sampled them
    trainer.train(0, rollouts[0])
    trainer.policies.sent(1)
    trainer.train(1, rollouts[2])
    fresh = Trainer(args_for(hf_model(), lr=1e-2))
    fresh.load()
    fresh.train(0, rollouts[0])
    want = _present_log_probs(fresh, rollouts[2])
    got = _prepared(trainer, rollouts[2])["log_probs"]
    for left, right in zip(got, want, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-6)
    assert trainer.train_prepared(2)["ppo_kl"] != 0


def test_only_two_versions_are_kept(hf_model, args_for):
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args_for(hf_model(), keep_old_actor=True))
    for version in range(5):
        trainer.policies.sent(version)
    assert len(trainer.policies.snapshots._snapshots) == 2


@pytest.mark.parametrize("distributed", [False, True])
def test_a_snapshot_in_host_memory_is_used_without_a_copy(distributed, hf_model, args_for):
    from slime.trainer.hf_weights import named_global_parameters
    from slime.trainer.trainer import Trainer

    args = args_for(hf_model("glm4_moe", False), use_distributed_optimizer=distributed)
    trainer = Trainer(args)
    trainer.load()
    snapshots = trainer.policies.snapshots

    def places() -> list[int]:
        return [value.data_ptr() for _, value in named_global_parameters(trainer.model)]

    snapshots.take("ref")
    kept = [value.data_ptr() for value in snapshots._snapshots["ref"]]
    own, present = places(), [v.clone() for _, v in named_global_parameters(trainer.model)]
    assert not set(kept) & set(own)  # what trains must not change it
    with pytest.raises(KeyboardInterrupt), snapshots.using("ref"):
        assert places() == kept and snapshots._snapshots.keys() == {"ref"}
        raise KeyboardInterrupt
    assert places() == own
    for value, (_, now) in zip(present, named_global_parameters(trainer.model), strict=True):
        assert torch.equal(value, now)
        now.data.add_(1.0)
    snapshots.take("ref")  # again: the same memory has the new values
    assert [value.data_ptr() for value in snapshots._snapshots["ref"]] == kept
    for value, before in zip(snapshots._snapshots["ref"], present, strict=True):
        assert torch.equal(value, before + 1.0)


def test_a_renewed_reference_survives_a_resume(hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer.trainer import Trainer

    options = {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k3", "lr": 1e-2}
    options |= {"ref_update_interval": 2}
    unbroken = Trainer(args_for(hf_model(), **options, save=tmp_path))
    unbroken.load()
    for i in range(3):
        unbroken.train(i, rollout_of(i))
    unbroken.save(2)
    resumed = Trainer(args_for(hf_model(), **options, load=tmp_path))
    assert resumed.load() == 3
    kl = [trainer.train(3, rollout_of(3))["kl"] for trainer in (unbroken, resumed)]
    assert kl[0] == kl[1] > 1e-3
