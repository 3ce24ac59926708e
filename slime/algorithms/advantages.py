"""Advantages and returns. Every estimator gives one [response_length] tensor per sample.

``kl`` arguments are per-token KL against the reference, used as a cost in the reward where kl_coef
is not 0 and otherwise only for their shapes. Positions where the loss mask is 0 take no part in
anything.
"""

from __future__ import annotations

import torch


def get_grpo_returns(rewards: torch.Tensor, kl: list[torch.Tensor]) -> list[torch.Tensor]:
    """GRPO (arXiv:2402.03300): the (already group-normalised) reward of a sample at each of its
    tokens.

    Args:
        rewards: [samples].
        kl: one tensor per sample: shapes and device.
    """
    return [torch.full_like(k, r) for k, r in zip(kl, rewards.tolist(), strict=True)]


def get_reinforce_plus_plus_returns(
    rewards: torch.Tensor,
    kl: list[torch.Tensor],
    loss_masks: list[torch.Tensor],
    response_lengths: list[int],
    total_lengths: list[int],
    kl_coef: float,
    gamma: float,
) -> list[torch.Tensor]:
    """REINFORCE++ (arXiv:2501.03262): discounted return of (-kl_coef * kl_t, + reward at the last
    action).

    A masked position (a tool's observation, padding) is no action: it has no reward, costs no
    discount and its return is 0.

    Args:
        rewards: [samples]; kl, loss_masks: one [response_length] tensor per sample.
    """
    returns = []
    for reward, cost, mask, length, total in zip(
        rewards.tolist(), kl, loss_masks, response_lengths, total_lengths, strict=True
    ):
        if not cost.numel() == mask.numel() == length <= total:
            raise ValueError(
                f"response of {length} tokens with {cost.numel()} KLs, {mask.numel()} masks"
            )
        actions = (mask != 0).nonzero().squeeze(1)
        result = torch.zeros(length, dtype=torch.float32, device=mask.device)
        if actions.numel():
            step_rewards = -kl_coef * cost[actions].float() if kl_coef else result[actions]
            step_rewards[-1] += reward
            result[actions] = chunked_discounted_returns(step_rewards[None], gamma)[0]
        returns.append(result)
    return returns


def get_reinforce_plus_plus_baseline_advantages(
    rewards: torch.Tensor, kl: list[torch.Tensor], loss_masks: list[torch.Tensor], kl_coef: float
) -> list[torch.Tensor]:
    """REINFORCE++-baseline: the group-centred reward, minus kl_coef * kl_t at each action."""
    advantages = []
    for reward, cost, mask in zip(rewards.tolist(), kl, loss_masks, strict=True):
        per_token = reward - kl_coef * cost if kl_coef else torch.full_like(cost, reward)
        advantages.append(torch.where(mask != 0, per_token, 0.0))
    return advantages


def chunked_discounted_returns(
    rewards: torch.Tensor, discount: float, chunk_size: int = 128
) -> torch.Tensor:
    """G_t = sum_{s >= t} discount^(s - t) r_s over the last dimension.

    A chunk is one product with a triangular matrix of powers; only the chunk ends are sequential.

    Args:
        rewards: [batch, length]. Returns the same shape.
    """
    batch, length = rewards.shape
    if length == 0:
        return rewards.clone()
    chunk = min(chunk_size, length)
    steps = torch.arange(chunk, device=rewards.device)
    gap = steps[:, None] - steps[None, :]  # [s, t]: how long after t comes s
    powers = torch.where(gap >= 0, float(discount) ** gap.clamp(min=0).double(), 0.0).to(
        rewards.dtype
    )
    carry_powers = (float(discount) ** (chunk - steps).double()).to(rewards.dtype)
    padded = torch.nn.functional.pad(rewards, (0, -length % chunk))
    returns = torch.empty_like(padded)
    carry = rewards.new_zeros(batch, 1)
    for begin in range(padded.size(1) - chunk, -1, -chunk):
        part = padded[:, begin : begin + chunk] @ powers + carry * carry_powers
        returns[:, begin : begin + chunk] = part
        carry = part[:, :1]
    return returns[:, :length]


def chunked_gae(
    rewards: torch.Tensor, values: torch.Tensor, gamma: float, lambd: float, chunk_size: int = 128
) -> tuple[torch.Tensor, torch.Tensor]:
    """Generalised advantage estimation (arXiv:1506.02438) in chunks; same result as
    :func:`vanilla_gae`.

    Args:
        rewards, values: [batch, length]; the value after the last position is 0.

    Returns:
        (advantages, returns = advantages + values), [batch, length].
    """
    next_values = torch.nn.functional.pad(values[:, 1:], (0, 1))
    deltas = rewards + gamma * next_values - values
    advantages = chunked_discounted_returns(deltas, gamma * lambd, chunk_size)
    return advantages, advantages + values


def vanilla_gae(
    rewards: torch.Tensor, values: torch.Tensor, gamma: float, lambd: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Generalised advantage estimation by its recursion A_t = delta_t + gamma lambd A_{t+1}."""
    advantages = torch.zeros_like(values)
    carry, next_value = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0])
    for t in reversed(range(values.size(1))):
        carry = rewards[:, t] + gamma * next_value - values[:, t] + gamma * lambd * carry
        advantages[:, t], next_value = carry, values[:, t]
    return advantages, advantages + values


def get_advantages_and_returns_batch(
    total_lengths: list[int],
    response_lengths: list[int],
    values_list: list[torch.Tensor],
    rewards_list: list[torch.Tensor],
    gamma: float,
    lambd: float,
    chunked: bool = True,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """GAE of samples of different lengths at once. Padding is at the end, with value and reward 0.

    Args:
        values_list, rewards_list: one [response_length] tensor per sample.

    Returns:
        (advantages, returns), one [response_length] tensor per sample.
    """
    if not len(total_lengths) == len(response_lengths) == len(values_list) == len(rewards_list):
        raise ValueError("total_lengths, response_lengths, values and rewards differ in length")
    pad = torch.nn.utils.rnn.pad_sequence
    values, rewards = pad(values_list, batch_first=True), pad(rewards_list, batch_first=True)
    gae = chunked_gae if chunked else vanilla_gae
    advantages, returns = gae(rewards.float(), values.float(), gamma, lambd)
    rows = range(len(response_lengths))
    return (
        [advantages[i, : response_lengths[i]] for i in rows],
        [returns[i, : response_lengths[i]] for i in rows],
    )


def get_ppo_advantages_and_returns(
    rewards: torch.Tensor,
    kl: list[torch.Tensor],
    values: list[torch.Tensor],
    loss_masks: list[torch.Tensor],
    kl_coef: float,
    gamma: float,
    lambd: float,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """PPO (arXiv:1707.06347): GAE over the actions, each costing kl_coef * kl_t, the last one
    rewarded.

    A masked position is no action: it has no reward, costs no discount, its value bootstraps
    nothing, and its advantage and return are 0.

    Args:
        rewards: [samples]; kl, values, loss_masks: one [response_length] tensor per sample.

    Returns:
        (advantages, returns), one float32 [response_length] tensor per sample.
    """
    actions = [(mask != 0).nonzero().squeeze(1) for mask in loss_masks]
    step_rewards = []
    for reward, cost, at in zip(rewards.tolist(), kl, actions, strict=True):
        step = -kl_coef * cost[at].float() if kl_coef else torch.zeros_like(at, dtype=torch.float32)
        step[-1:] += reward
        step_rewards.append(step)
    counts = [len(at) for at in actions]
    held = [value.float()[at] for value, at in zip(values, actions, strict=True)]
    both = get_advantages_and_returns_batch(counts, counts, held, step_rewards, gamma, lambd)

    def spread(parts: list[torch.Tensor]) -> list[torch.Tensor]:
        return [
            mask.new_zeros(len(mask), dtype=torch.float32).index_copy(0, at, part)
            for mask, at, part in zip(loss_masks, actions, parts, strict=True)
        ]

    return spread(both[0]), spread(both[1])
