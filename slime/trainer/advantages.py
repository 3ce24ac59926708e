"""Advantages and returns of a rollout, by the estimator that the arguments name."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

import torch
from megatron.core import parallel_state

from slime.algorithms import advantages as estimators
from slime.algorithms.kl import compute_approx_kl
from slime.algorithms.reducers import masked_whiten
from slime.hooks.loading import load_function
from slime.trainer.cp_utils import gather_responses, slice_responses
from slime.trainer.rollout_tensors import RolloutBatch

PerSample = list[torch.Tensor]
Estimate = tuple[PerSample, PerSample]  # advantages, returns: whole responses
Estimator = Callable[[Namespace, torch.Tensor, PerSample, RolloutBatch], Estimate]


def compute_advantages_and_returns(args: Namespace, rollout_data: RolloutBatch) -> None:
    """Add ``advantages`` and ``returns`` (one tensor per sample, this rank's tokens) to the rollout
    data.

    Uses ``rewards`` (already normalised by group), ``values`` with PPO, and ``log_probs`` and
    ``ref_log_probs`` where a KL cost is asked for (``--kl-coef``), which is added as ``kl``. With
    ``--use-opd`` the distance to the teacher lowers the advantages, before they are whitened.
    """
    if args.custom_advantage_function_path:
        load_function(args.custom_advantage_function_path)(args, rollout_data)
        return
    whole_masks = rollout_data["loss_masks"]
    rewards = torch.tensor(rollout_data["rewards"], dtype=torch.float32)
    kl = _kl_cost(args, rollout_data)
    whole, whole_returns = ESTIMATORS[args.advantage_estimator](args, rewards, kl, rollout_data)
    advantages = _held(rollout_data, whole)
    if args.use_opd:
        advantages = _towards_teacher(args, rollout_data, advantages)
    if args.normalize_advantages:
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        advantages = masked_whiten(advantages, _held(rollout_data, whole_masks), group)
    rollout_data["advantages"] = advantages
    rollout_data["returns"] = _held(rollout_data, whole_returns)


def _held(data: RolloutBatch, whole: PerSample) -> PerSample:
    """The parts of whole responses that this context-parallel rank holds."""
    return slice_responses(whole, data["total_lengths"], data["response_lengths"])


def _whole(data: RolloutBatch, held: PerSample) -> PerSample:
    return gather_responses(held, data["total_lengths"], data["response_lengths"])


def _kl_cost(args: Namespace, data: RolloutBatch) -> PerSample:
    """KL to the reference at every token of whole responses; zeros without ``--kl-coef``."""
    if args.kl_coef == 0:
        return [torch.zeros_like(mask) for mask in data["loss_masks"]]
    pairs = zip(data["log_probs"], data["ref_log_probs"], strict=True)
    data["kl"] = [compute_approx_kl(p, base, args.kl_loss_type) for p, base in pairs]
    return _whole(data, data["kl"])


def _towards_teacher(args: Namespace, data: RolloutBatch, advantages: PerSample) -> PerSample:
    """On-policy distillation (arXiv:2306.13649; Lu, "On-Policy Distillation", 2025).

    A_t - opd_kl_coef * (log p_student - log p_teacher): the reverse KL at the sampled token, which
    is added as ``opd_kl``. 0 where masked.
    """
    student = data["log_probs"] if "log_probs" in data else data["rollout_log_probs"]
    masks = _held(data, data["loss_masks"])
    rows = zip(student, data["teacher_log_probs"], masks, strict=True)
    data["opd_kl"] = [torch.where(mask != 0, s - t, 0.0) for s, t, mask in rows]
    pairs = zip(advantages, data["opd_kl"], strict=True)
    return [advantage - args.opd_kl_coef * kl for advantage, kl in pairs]


def _of_reward(
    args: Namespace, rewards: torch.Tensor, kl: PerSample, data: RolloutBatch
) -> Estimate:
    whole = estimators.get_grpo_returns(rewards, kl)
    return whole, whole


def _reinforce_plus_plus(
    args: Namespace, rewards: torch.Tensor, kl: PerSample, data: RolloutBatch
) -> Estimate:
    whole = estimators.get_reinforce_plus_plus_returns(
        rewards,
        kl,
        data["loss_masks"],
        data["response_lengths"],
        data["total_lengths"],
        args.kl_coef,
        args.gamma,
    )
    return whole, whole


def _reinforce_plus_plus_baseline(
    args: Namespace, rewards: torch.Tensor, kl: PerSample, data: RolloutBatch
) -> Estimate:
    whole = estimators.get_reinforce_plus_plus_baseline_advantages(
        rewards, kl, data["loss_masks"], args.kl_coef
    )
    return whole, whole


def _ppo(args: Namespace, rewards: torch.Tensor, kl: PerSample, data: RolloutBatch) -> Estimate:
    values = _whole(data, data["values"])
    return estimators.get_ppo_advantages_and_returns(
        rewards, kl, values, data["loss_masks"], args.kl_coef, args.gamma, args.lambd
    )


ESTIMATORS: dict[str, Estimator] = {
    "grpo": _of_reward,
    "gspo": _of_reward,
    "cispo": _of_reward,
    "rloo": _of_reward,
    "reinforce_plus_plus": _reinforce_plus_plus,
    "reinforce_plus_plus_baseline": _reinforce_plus_plus_baseline,
    "ppo": _ppo,
}
