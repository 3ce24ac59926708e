"""Corrections for samples that another policy drew: the engines round differently from the trainer,
and lag behind it.

With d_t = log p_train - log p_rollout of a sampled token, the ratio of a token is taken at a level:
``token`` exp(d_t); ``sequence`` exp(sum d), the exact weight of the whole response; ``geometric``
exp(mean d), that sum free of its length (GSPO's ratio). Sums and means run over unmasked tokens.

References: Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"
(2025), truncation; Liu et al., "When Speed Kills Stability: Demystifying RL Collapse from the
Training-Inference Mismatch" (2025), levels, masking and rejection.
"""

from __future__ import annotations

import torch

from slime.algorithms.reducers import masked_mean, masked_sum

LEVELS = ("token", "sequence", "geometric")
MODES = ("truncate", "mask", "reject")
# exp(20) is beyond any bound, and its square is still finite in float32.
_LOG_RATIO_BOUND = 20.0


def log_ratios(
    train: list[torch.Tensor], rollout: list[torch.Tensor], masks: list[torch.Tensor], level: str
) -> list[torch.Tensor]:
    """log p_train - log p_rollout at ``level``, for each token; 0 where masked, within [-20, 20].

    Args:
        train, rollout, masks: one [response_length] tensor per sample, whole responses.
    """
    ratios = []
    for new, old, mask in zip(train, rollout, masks, strict=True):
        d = torch.where(mask != 0, new - old, 0.0)
        if level == "sequence":
            d = masked_sum(d, mask).expand_as(d)
        elif level == "geometric":
            d = masked_mean(d, mask).expand_as(d)
        ratios.append(torch.where(mask != 0, d, 0.0).clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND))
    return ratios


def importance_weights(
    train: list[torch.Tensor],
    rollout: list[torch.Tensor],
    masks: list[torch.Tensor],
    level: str,
    mode: str,
    low: float,
    high: float,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What to multiply the loss of each token by, detached.

    With the ratio w at ``level``: ``truncate`` clip(w, low, high); ``mask`` w inside [low, high]
    and 0 outside; ``reject`` 1 inside and 0 outside.

    Args:
        train, rollout, masks: one [response_length] tensor per sample, whole responses.

    Returns:
        (weights, outside), per sample [response_length]; ``outside`` is 1.0 where w was outside
        [low, high].

    Raises:
        ValueError: an unknown level or mode.
    """
    if level not in LEVELS or mode not in MODES:
        raise ValueError(f"level {level!r}, mode {mode!r}: use one of {LEVELS}, {MODES}")
    weights, outside = [], []
    for d in log_ratios(train, rollout, masks, level):
        ratio = d.detach().exp()
        out = (ratio < low) | (ratio > high)
        if mode == "truncate":
            weight = ratio.clamp(low, high)
        else:
            weight = torch.where(out, 0.0, ratio if mode == "mask" else torch.ones_like(ratio))
        weights.append(weight)
        outside.append(out.float())
    return weights, outside


def mismatch_metrics(
    train: list[torch.Tensor], rollout: list[torch.Tensor], masks: list[torch.Tensor]
) -> dict[str, list[torch.Tensor]]:
    """How far the trainer's policy is from the one that sampled; per-token values to be averaged.

    ``mismatch_kl`` KL(rollout || train) by k1 = -d; ``mismatch_k3`` the same by exp(d) - 1 - d;
    ``chi2_token`` exp(2 d) - 1; ``chi2_sequence`` exp(2 sum d) - 1. And per sequence, repeated at
    each of its tokens: ``train_ppl``, ``rollout_ppl`` = exp(-mean log p), ``ppl_ratio`` = rollout's
    by the trainer's, ``log_ppl_diff`` = its absolute logarithm.

    Args:
        train, rollout, masks: one [response_length] tensor per sample, whole responses.
    """
    result: dict[str, list[torch.Tensor]] = {}
    d_token = log_ratios(train, rollout, masks, "token")
    d_sequence = log_ratios(train, rollout, masks, "sequence")
    for new, old, mask, d, whole in zip(train, rollout, masks, d_token, d_sequence, strict=True):
        mean_new, mean_old = masked_mean(new, mask), masked_mean(old, mask)
        values = {
            "mismatch_kl": -d,
            "mismatch_k3": torch.expm1(d) - d,
            "chi2_token": torch.expm1(2 * d),
            "chi2_sequence": torch.expm1(2 * whole),
            "train_ppl": torch.exp(-mean_new),
            "rollout_ppl": torch.exp(-mean_old),
            "ppl_ratio": torch.exp(mean_new - mean_old),
            "log_ppl_diff": (mean_new - mean_old).abs(),
        }
        for name, value in values.items():
            result.setdefault(name, []).append(value.detach().expand_as(d))
    return result
