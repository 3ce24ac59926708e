"""Surrogates against their formulas, case by case."""

from __future__ import annotations

import math

import pytest
import torch

from slime.algorithms.losses import (
    compute_cispo_loss,
    compute_policy_loss,
    compute_value_loss,
)


def _ppo(ratio: float, advantage: float, low: float, high: float, dual: float | None) -> float:
    """The paper's formula in plain arithmetic."""
    objective = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    if dual is not None and advantage < 0:
        objective = max(objective, dual * advantage)
    return -objective


@pytest.mark.parametrize("dual", [None, 3.0])
@pytest.mark.parametrize("advantage", [2.0, -1.5, 0.0])
@pytest.mark.parametrize("ratio", [0.2, 0.79, 0.81, 1.0, 1.19, 1.29, 1.31, 5.0])
def test_policy_loss_equals_the_formula(ratio, advantage, dual):
    ppo_kl, advantages = torch.tensor([-math.log(ratio)]), torch.tensor([advantage])
    loss, clipped = compute_policy_loss(ppo_kl, advantages, 0.2, 0.3, dual)
    assert loss.item() == pytest.approx(_ppo(ratio, advantage, 0.2, 0.3, dual), rel=1e-5, abs=1e-6)
    beyond = ratio > 1.3 if advantage > 0 else advantage < 0 and ratio < 0.8
    dualled = dual is not None and advantage < 0 and ratio > dual
    assert bool(clipped.item()) == (beyond or dualled)


def test_the_clip_stops_the_gradient_on_its_side_only():
    log_ratio = torch.tensor([0.5, 0.5, -0.5, -0.5], requires_grad=True)
    loss, _ = compute_policy_loss(-log_ratio, torch.tensor([1.0, -1.0, 1.0, -1.0]), 0.2, 0.2)
    loss.sum().backward()
    assert [g == 0 for g in log_ratio.grad.tolist()] == [True, False, False, True]


def test_dual_clip_needs_a_bound_above_one():
    with pytest.raises(ValueError, match=r"eps_clip_c=0\.5"):
        compute_policy_loss(torch.zeros(1), torch.ones(1), 0.2, 0.2, 0.5)


def test_cispo_keeps_the_gradient_of_every_token():
    log_probs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    old = torch.tensor([-3.0, -2.0, -1.0])
    advantages = torch.tensor([1.0, 2.0, -1.0])
    loss, clipped = compute_cispo_loss(old - log_probs, log_probs, advantages, 0.2, 0.3)
    weights = [1.3, 1.0, 0.8]
    assert clipped.tolist() == [1.0, 0.0, 1.0]
    want = [
        -w * a * p for w, a, p in zip(weights, [1.0, 2.0, -1.0], [-1.0, -2.0, -3.0], strict=True)
    ]
    assert loss.tolist() == pytest.approx(want)
    loss.sum().backward()
    assert log_probs.grad.tolist() == pytest.approx([-1.3, -2.0, 0.8])


def test_value_loss_takes_the_larger_error():
    values, old, returns = (
        torch.tensor([2.0, 0.5]),
        torch.tensor([0.0, 0.4]),
        torch.tensor([2.0, 1.0]),
    )
    loss, clipped = compute_value_loss(values, old, returns, 0.2)
    assert loss.tolist() == pytest.approx([(0.2 - 2.0) ** 2 / 2, (0.5 - 1.0) ** 2 / 2])
    assert clipped.tolist() == [1.0, 0.0]
