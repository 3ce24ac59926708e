"""One rank against plain Hugging Face training: logits, loss, gradient norm, weights."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.usefixtures("single_rank")

FULL_LOSS = {
    "entropy_coef": 0.01,
    "use_kl_loss": True,
    "kl_loss_coef": 0.1,
    "kl_loss_type": "k3",
}


def _weights(trainer) -> dict[str, torch.Tensor]:
    return {n: t.clone() for bucket in trainer.hf_weight_buckets(1 << 14) for n, t in bucket}


@pytest.mark.parametrize(
    ("kind", "tied"), [("qwen3", True), ("qwen3", False), ("qwen2", True), ("llama", False)]
)
def test_training_equals_hugging_face(kind, tied, hf_model, args_for, rollout_of, reference_of):
    from slime.trainer.trainer import Trainer

    args = args_for(hf_model(kind, tied), **FULL_LOSS)
    rollouts = [rollout_of(seed) for seed in range(3)]
    trainer = Trainer(args)
    assert trainer.load() == 0
    metrics = [trainer.train(i, rollout) for i, rollout in enumerate(rollouts)]
    reference = reference_of(args, rollouts)
    for got, want in zip(metrics, reference.metrics, strict=True):
        for key, value in want.items():
            assert got[key] == pytest.approx(value, rel=1e-5, abs=2e-6), key
    weights = _weights(trainer)
    tied_names = {"lm_head.weight"} if tied else set()
    assert weights.keys() == reference.weights.keys() - tied_names
    for name, value in weights.items():
        torch.testing.assert_close(value, reference.weights[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "deepseek_v3"])
@pytest.mark.parametrize(
    "recompute",
    [
        {"recompute_granularity": "selective"},
        {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
    ],
    ids=["selective", "full"],
)
def test_recomputed_activations_give_the_same_bits(kind, recompute, hf_model, args_for, rollout_of):
    from slime.trainer.trainer import Trainer

    results = []
    for options in ({}, recompute):
        trainer = Trainer(args_for(hf_model(kind, False), **FULL_LOSS, **options))
        trainer.load()
        metrics = trainer.train(0, rollout_of(0))
        results.append(({k: metrics[k] for k in ("loss", "grad_norm", "kl")}, _weights(trainer)))
    (plain, weights), (again, same) = results
    assert plain == again
    assert all(torch.equal(same[name], value) for name, value in weights.items())


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "glm4", "deepseek_v3"])
def test_bf16_stays_near_fp32(kind, hf_model, args_for, rollout_of):
    from slime.trainer.trainer import Trainer

    found = []
    for options in ({}, {"bf16": True}):
        trainer = Trainer(args_for(hf_model(kind, False), **options))
        trainer.load()
        found.append([trainer.train(i, rollout_of(i)) for i in range(2)])
        weights = _weights(trainer)
    assert {value.dtype for name, value in weights.items() if "bias" not in name} == {
        torch.bfloat16
    }
    for full, half in zip(*found, strict=True):
        assert half["loss"] == pytest.approx(full["loss"], abs=0.02)
        assert half["entropy"] == pytest.approx(full["entropy"], rel=0.01)
        assert half["grad_norm"] == pytest.approx(full["grad_norm"], rel=0.1)
