"""PPO: the critic against plain Hugging Face with a linear head, and what it tells the actor."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from value_reference import ValueModel, gae, train_values

pytestmark = pytest.mark.usefixtures("single_rank")
PPO = {"advantage_estimator": "ppo", "gamma": 0.9, "lambd": 0.8, "value_clip": 0.005}


@pytest.fixture
def critic_for(hf_model, args_for):
    """A critic with ``options``, its weights loaded."""

    def make(**options):
        from slime.arguments.roles import args_of_role
        from slime.trainer.critic import CriticTrainer

        critic = CriticTrainer(args_of_role(args_for(hf_model(), **PPO, **options), "critic"))
        critic.load()
        return critic

    return make


def _head(critic):
    weight = critic.model[0].module.output_layer.weight
    assert weight.is_value_head
    return weight.detach().clone()


def _train(critic, rollouts):
    """Values and metrics of each rollout; the returns by the float64 recursion."""
    told = []
    for rollout_id, rollout in enumerate(rollouts):
        values = critic.values(rollout)
        rows = zip(rollout["rewards"], rollout["loss_masks"], strict=True)
        returns = {
            i: gae(critic.args, reward, values[i], mask)[1].astype(np.float32)
            for i, (reward, mask) in enumerate(rows)
        }
        told.append((values, critic.train_values(rollout_id, returns)))
    return told


def test_values_and_training_equal_hugging_face(critic_for, rollout_of):
    critic = critic_for(lr=1e-3)
    rollouts, head = [rollout_of(seed) for seed in range(3)], _head(critic)
    model = ValueModel(critic.args.hf_checkpoint, head)
    told = _train(critic, rollouts)
    for i, values in told[0][0].items():
        with torch.no_grad():
            want = model.response_values(rollouts[0], i)
        np.testing.assert_allclose(values, want, rtol=0, atol=1e-5)
    metrics, trained = train_values(critic.args, head, rollouts)
    for (_, got), want in zip(told, metrics, strict=True):
        for key, value in want.items():
            assert got[key] == pytest.approx(value, rel=1e-5, abs=3e-6), key
    assert told[-1][1]["value_clipfrac"] > 0
    torch.testing.assert_close(_head(critic), trained.head.detach(), rtol=0, atol=1e-5)


def test_what_stands_at_a_masked_position_never_matters(critic_for, rollout_of):
    clean = rollout_of(4, steps=1)
    results = []
    for poison in (0.0, float("nan")):
        critic = critic_for()
        values = critic.values(clean)
        returns = {i: np.where(m != 0, 1.0, poison) for i, m in enumerate(clean["loss_masks"])}
        returns = {i: value.astype(np.float32) for i, value in returns.items()}
        metrics = critic.train_values(0, returns)
        results.append((values, metrics["loss"], metrics["grad_norm"], _head(critic)))
    assert results[0][1:3] == results[1][1:3]
    assert torch.equal(results[0][3], results[1][3])


def test_actor_and_critic_meet(critic_for, hf_model, args_for, rollout_of):
    """The actor's advantages and returns are those of the recursion over the critic's values."""
    from slime.trainer.trainer import Trainer

    actor, critic = Trainer(args_for(hf_model(), **PPO)), critic_for()
    actor.load()
    rollout = rollout_of(1, steps=1)
    rollout["partition"] = list(range(10, 18))  # the samples' places in the whole rollout
    values = critic.values(copy.deepcopy(rollout))
    assert sorted(values) == rollout["partition"]
    returns = actor.prepare(rollout, values)
    for i, at in enumerate(rollout["partition"]):
        want = gae(actor.args, rollout["rewards"][i], values[at], rollout["loss_masks"][i])
        np.testing.assert_allclose(actor._prepared["advantages"][i], want[0], atol=1e-5)
        np.testing.assert_allclose(returns[at], want[1], atol=1e-5)
    metrics = actor.train_prepared(0)
    assert metrics["grad_norm"] > 0
    assert metrics["values"] == pytest.approx(critic.train_values(0, returns)["values"], abs=1e-6)
    with pytest.raises(ValueError, match=r"no values for the samples at \[17\]"):
        actor.prepare(rollout, {k: v for k, v in values.items() if k != 17})


def test_a_critic_resumes_exactly(critic_for, rollout_of, tmp_path):
    folder, rollouts = str(tmp_path), [rollout_of(seed) for seed in range(3)]
    first = critic_for(save=folder)
    _train(first, rollouts[:2])
    first.args.save = folder
    first.save(1)
    unbroken = _train(first, rollouts[2:])
    second = critic_for()
    second.args.load = folder
    assert second.load() == 2
    resumed = _train(second, rollouts[2:])
    assert resumed[0][1]["loss"] == unbroken[0][1]["loss"]
    assert torch.equal(_head(first), _head(second))


def test_get_values_cuts_the_published_packed_output(args_for, hf_model):
    from slime.trainer.value_loss import get_values

    tokens = [torch.arange(5), torch.arange(7)]
    output = torch.arange(12.0).reshape(1, 12, 1)
    values = get_values(
        output,
        args=args_for(hf_model()),
        unconcat_tokens=tokens,
        total_lengths=[5, 7],
        response_lengths=[2, 3],
    )["values"]
    assert [v.tolist() for v in values] == [[2.0, 3.0], [8.0, 9.0, 10.0]]
