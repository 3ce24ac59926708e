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
