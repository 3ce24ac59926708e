"""Per-token policy and value losses. All take and give flat tensors [n]; reducing is separate."""

from __future__ import annotations

import torch


def compute_policy_loss(
    ppo_kl: torch.Tensor,
    advantages: torch.Tensor,
    eps_clip: float,
    eps_clip_high: float,
    eps_clip_c: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The clipped surrogate of PPO (arXiv:1707.06347), with clip-higher and dual clip.

    r = exp(-ppo_kl); loss = max(-r A, -clip(r, 1 - eps_clip, 1 + eps_clip_high) A). The separate
    upper bound is DAPO's clip-higher (arXiv:2503.14476). With ``eps_clip_c`` > 1 the loss of a
    negative advantage is bounded by -c A (dual clip, arXiv:1912.09729).

    Args:
        ppo_kl: [n] log p_old - log p.
        advantages: [n].

    Returns:
        (loss [n], clipped [n]: 1.0 where the clip is active).

    Raises:
        ValueError: ``eps_clip_c`` <= 1.
    """
    ratio = torch.exp(-ppo_kl)
    plain = -ratio * advantages
    clipped = -ratio.clamp(1 - eps_clip, 1 + eps_clip_high) * advantages
    loss = torch.maximum(plain, clipped)
    is_clipped = clipped > plain
    if eps_clip_c is not None:
        if eps_clip_c <= 1.0:
            raise ValueError(f"eps_clip_c={eps_clip_c}: dual clip needs a value above 1")
        bound = -eps_clip_c * advantages
        is_clipped = is_clipped | ((advantages < 0) & (loss > bound))
        loss = torch.where(advantages < 0, torch.minimum(loss, bound), loss)
    return loss, is_clipped.float()


def compute_cispo_loss(
    ppo_kl: torch.Tensor,
    log_probs: torch.Tensor,
    advantages: torch.Tensor,
    eps_clip: float,
    eps_clip_high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """CISPO (MiniMax-M1, arXiv:2506.13585): the importance weight is clipped, no token is dropped.

    loss = -sg(clip(r, 1 - eps_clip, 1 + eps_clip_high)) A log p, with r = exp(-ppo_kl). All [n].

    Returns:
        (loss [n], clipped [n]: 1.0 where the weight was clipped).
    """
    ratio = torch.exp(-ppo_kl).detach()
    weight = ratio.clamp(1 - eps_clip, 1 + eps_clip_high)
    return -weight * advantages * log_probs, (weight != ratio).float()


def compute_value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, value_clip: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The clipped value loss of PPO: max((v - R)^2, (clip(v, v_old +- value_clip) - R)^2) / 2.

    Returns:
        (loss [n], clipped [n]: 1.0 where the clipped term is the larger).
    """
    held = old_values + (values - old_values).clamp(-value_clip, value_clip)
    plain, clipped = (values - returns).square(), (held - returns).square()
    return torch.maximum(plain, clipped) / 2, (clipped > plain).float()
