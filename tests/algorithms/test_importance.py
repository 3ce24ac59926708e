"""Importance weights and mismatch metrics against sums written out in float64."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.algorithms.importance import LEVELS, MODES, importance_weights, mismatch_metrics


def _samples(seed: int) -> tuple[list, list, list]:
    """Log-probs of trainer and engine, and masks with NaN behind them."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 9, 3)
    masks = [(random.random(n) > 0.3).astype(np.float64) for n in lengths]
    train = [random.normal(-2, 1, n) for n in lengths]
    rollout = [random.normal(-2, 1, n) for n in lengths]
    for values, mask in zip(rollout, masks, strict=True):
        values[mask == 0] = np.nan
    return train, rollout, masks


def _tensors(parts: list) -> list[torch.Tensor]:
    return [torch.tensor(part, dtype=torch.float32) for part in parts]


def _ratio(new, old, mask, level, t) -> float:
    gaps = [new[i] - old[i] for i in range(len(mask)) if mask[i]]
    if level == "token":
        return math.exp(new[t] - old[t])
    return math.exp(sum(gaps) / (len(gaps) if level == "geometric" else 1))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    level=st.sampled_from(LEVELS),
    mode=st.sampled_from(MODES),
    bounds=st.sampled_from([(0.0, 2.0), (0.5, 1.5), (0.9, 1.1)]),
)
def test_weights(seed, level, mode, bounds):
    train, rollout, masks = _samples(seed)
    low, high = bounds
    weights, outside = importance_weights(
        _tensors(train), _tensors(rollout), _tensors(masks), level, mode, low, high
    )
    for i, t in product(range(3), range(8)):
        if t >= len(masks[i]) or not masks[i][t]:
            continue
        ratio = _ratio(train[i], rollout[i], masks[i], level, t)
        if min(abs(ratio - low), abs(ratio - high)) < 1e-4:
            continue
        inside = low <= ratio <= high
        want = {
            "truncate": min(max(ratio, low), high),
            "mask": ratio if inside else 0.0,
            "reject": 1.0 if inside else 0.0,
        }[mode]
        assert weights[i][t].item() == pytest.approx(want, rel=1e-4)
        assert outside[i][t].item() == (not inside)


def test_weights_are_detached_and_finite_however_far_apart():
    train = [torch.tensor([-1.0, -1000.0], requires_grad=True)]
    for level in LEVELS:
        args = (train, [torch.tensor([-900.0, -1.0])], [torch.ones(2)], level)
        weights, _ = importance_weights(*args, "mask", 0.0, math.inf)
        assert not weights[0].requires_grad
        assert torch.isfinite(weights[0]).all()


def test_an_unknown_level_or_mode_is_named():
    with pytest.raises(ValueError, match="word"):
        importance_weights([], [], [], "word", "mask", 0, 1)
    with pytest.raises(ValueError, match="drop"):
        importance_weights([], [], [], "token", "drop", 0, 1)


@pytest.mark.parametrize("seed", range(5))
def test_mismatch_metrics(seed):
    train, rollout, masks = _samples(seed)
    got = mismatch_metrics(_tensors(train), _tensors(rollout), _tensors(masks))
    for i, mask in enumerate(masks):
        kept = np.flatnonzero(mask)
        if not len(kept):
            continue
        d = train[i][kept] - rollout[i][kept]
        ppl, rollout_ppl = (np.exp(-part[i][kept].mean()) for part in (train, rollout))
        want = {
            "mismatch_kl": -d,
            "mismatch_k3": np.exp(d) - 1 - d,
            "chi2_token": np.exp(2 * d) - 1,
            "chi2_sequence": np.full(len(d), np.exp(2 * d.sum()) - 1),
            "train_ppl": np.full(len(d), ppl),
            "rollout_ppl": np.full(len(d), rollout_ppl),
            "ppl_ratio": np.full(len(d), rollout_ppl / ppl),
            "log_ppl_diff": np.full(len(d), abs(np.log(rollout_ppl / ppl))),
        }
        assert got.keys() == want.keys()
        for name, values in want.items():
            np.testing.assert_allclose(got[name][i][kept], values, rtol=1e-4, atol=1e-5)


def test_the_estimators_of_the_mismatch_agree_with_the_exact_divergence():
    """Over all tokens of a distribution, weighted by the sampler's probabilities."""
    sampler, trainer = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    kl = (sampler * (sampler / trainer).log()).sum()
    chi2 = (trainer**2 / sampler).sum() - 1
    got = mismatch_metrics([trainer.log()], [sampler.log()], [torch.ones(3)])
    assert (sampler * got["mismatch_kl"][0]).sum().item() == pytest.approx(kl.item(), abs=1e-6)
    assert (sampler * got["mismatch_k3"][0]).sum().item() == pytest.approx(kl.item(), abs=1e-6)
    assert (sampler * got["chi2_token"][0]).sum().item() == pytest.approx(chi2.item(), abs=1e-6)
