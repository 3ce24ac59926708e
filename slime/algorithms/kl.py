"""KL divergence: per-token estimators; the sequence-level ratio and mask built on it."""

from __future__ import annotations

from argparse import Namespace

import torch

from slime.algorithms.reducers import masked_mean

# Bound of the log-ratio in `low_var_kl`: exp(10) is already far outside any trust region.
_LOG_RATIO_BOUND = 10.0


def compute_approx_kl(
    log_probs: torch.Tensor,
    log_probs_base: torch.Tensor,
    kl_loss_type: str,
    importance_ratio: torch.Tensor | None = None,
) -> torch.Tensor:
    """KL(policy || base) estimated from one sampled token each.

    With d = log p - log p_base (Schulman, "Approximating KL divergence", 2020):
    ``k1`` = d; ``k2`` = d^2 / 2; ``k3`` = exp(-d) - 1 + d; ``low_var_kl`` is k3 with d held in
    [-10, 10].

    Args:
        log_probs, log_probs_base: same shape, of the sampled tokens.
        importance_ratio: p / p_sampler; multiplying by it makes the estimate (and its gradient)
            unbiased for tokens drawn from the sampler (DeepSeek-V3.2, arXiv:2512.02556).

    Raises:
        ValueError: unknown ``kl_loss_type``.
    """
    d = log_probs.float() - log_probs_base.float()
    if kl_loss_type == "k1":
        kl = d
    elif kl_loss_type == "k2":
        kl = d.square() / 2
    elif kl_loss_type == "k3":
        kl = torch.expm1(-d) + d
    elif kl_loss_type == "low_var_kl":
        bounded = d.clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND)
        kl = torch.expm1(-bounded) + bounded
    else:
        raise ValueError(f"kl_loss_type={kl_loss_type!r}: use k1, k2, k3 or low_var_kl")
    return kl if importance_ratio is None else importance_ratio * kl


def compute_gspo_kl(
    full_log_probs: list[torch.Tensor],
    full_old_log_probs: list[torch.Tensor],
    local_log_probs: list[torch.Tensor],
    loss_masks: list[torch.Tensor],
) -> torch.Tensor:
    """The length-normalised sequence log-ratio of GSPO (arXiv:2507.18071), for every local token.

    k_i = mean over the unmasked tokens of (log p_old - log p), so exp(-k_i) is the paper's s_i.

    Args:
        full_log_probs, full_old_log_probs, loss_masks: one [response_length] tensor per sequence.
        local_log_probs: the part of each sequence that this context-parallel rank holds.

    Returns:
        [sum of local lengths]: k_i repeated for each token of sequence i.
    """
    rows = zip(full_log_probs, full_old_log_probs, local_log_probs, loss_masks, strict=True)
    return torch.cat(
        [masked_mean(old - new, mask).expand(local.numel()) for new, old, local, mask in rows]
    )


def compute_opsm_mask(
    args: Namespace,
    full_log_probs: list[torch.Tensor],
    full_old_log_probs: list[torch.Tensor],
    advantages: list[torch.Tensor],
    loss_masks: list[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Off-policy sequence masking (DeepSeek-V3.2, arXiv:2512.02556).

    A token is dropped when its advantage is negative and the sequence's mean of (log p_old - log p)
    exceeds ``args.opsm_delta``.

    Args:
        full_log_probs, full_old_log_probs, loss_masks: one [response_length] tensor per sequence.
        advantages: the local part of each sequence.

    Returns:
        (mask [sum of local lengths] of 1.0 / 0.0, fraction of sequences with a dropped token).
    """
    masks, dropped = [], []
    rows = zip(full_log_probs, full_old_log_probs, advantages, loss_masks, strict=True)
    for new, old, advantage, loss_mask in rows:
        divergence = masked_mean(old - new, loss_mask).detach()
        drop = (advantage < 0) & (divergence > args.opsm_delta)
        masks.append((~drop).float())
        dropped.append(drop.any().float())
    return torch.cat(masks), torch.stack(dropped).mean()
