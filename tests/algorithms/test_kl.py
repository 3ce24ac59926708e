"""KL estimators: against the exact divergence, and the sequence-level quantities."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from slime.algorithms.kl import compute_approx_kl, compute_gspo_kl, compute_opsm_mask

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
BASE = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
EXACT = (P * (P.log() - BASE.log())).sum().item()


@pytest.mark.parametrize("kind", ["k1", "k3", "low_var_kl"])
def test_the_expectation_over_the_policy_is_the_divergence(kind):
    estimates = compute_approx_kl(P.log(), BASE.log(), kind).double()
    assert (P * estimates).sum().item() == pytest.approx(EXACT, abs=1e-6)


def test_k2_is_half_the_square():
    got = compute_approx_kl(torch.tensor([-1.0]), torch.tensor([-3.0]), "k2")
    assert got.item() == pytest.approx(2.0)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_importance_ratio_makes_it_unbiased_under_another_sampler(kind):
    sampler = torch.tensor([0.1, 0.1, 0.8], dtype=torch.float64)
    estimates = compute_approx_kl(P.log(), BASE.log(), kind, P / sampler).double()
    assert (sampler * estimates).sum().item() == pytest.approx(EXACT, abs=1e-6)


def test_low_var_is_bounded_where_k3_overflows():
    far = torch.tensor([-200.0]), torch.tensor([0.0])
    assert torch.isinf(compute_approx_kl(*far, "k3"))
    assert torch.isfinite(compute_approx_kl(*far, "low_var_kl"))


def test_unknown_kind_is_named():
    with pytest.raises(ValueError, match="k9"):
        compute_approx_kl(torch.zeros(1), torch.zeros(1), "k9")


def test_gspo_ratio_is_the_geometric_mean_over_unmasked_tokens():
    new = [torch.tensor([-1.0, -2.0, float("nan")], requires_grad=True), torch.tensor([-1.0])]
    old = [torch.tensor([-1.5, -1.0, -1.0]), torch.tensor([-3.0])]
    masks = [torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0])]
    kl = compute_gspo_kl(new, old, new, masks)
    assert kl.tolist() == pytest.approx([0.25, 0.25, 0.25, -2.0])
    kl[:2].sum().backward()
    assert new[0].grad.tolist() == pytest.approx([-1.0, -1.0, 0.0])


def test_opsm_drops_negative_tokens_of_diverged_sequences_only():
    args = Namespace(opsm_delta=0.1)
    new = [torch.tensor([-2.0, -2.0]), torch.tensor([-2.0]), torch.tensor([-1.0])]
    old = [torch.tensor([-1.0, -1.0]), torch.tensor([-1.0]), torch.tensor([-1.0])]
    advantages = [torch.tensor([-1.0, 1.0]), torch.tensor([1.0]), torch.tensor([-1.0])]
    masks = [torch.ones(2), torch.ones(1), torch.ones(1)]
    mask, fraction = compute_opsm_mask(args, new, old, advantages, masks)
    assert mask.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert fraction.item() == pytest.approx(1 / 3)
