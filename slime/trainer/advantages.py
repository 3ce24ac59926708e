"""Advantages and returns of a rollout, by the estimator that the arguments name."""

from __future__ import annotations

from argparse import Namespace

import torch
from megatron.core import parallel_state

from slime.algorithms import advantages as estimators
from slime.algorithms.kl import compute_approx_kl
from slime.algorithms.reducers import masked_whiten
from slime.hooks.loading import load_function
from slime.trainer.cp_utils import all_gather_with_cp, slice_log_prob_with_cp
from slime.trainer.rollout_tensors import RolloutBatch


def compute_advantages_and_returns(args: Namespace, rollout_data: RolloutBatch) -> None:
    """Add ``advantages`` and ``returns`` (one tensor per sample, this rank's tokens) to the rollout
    data.

    Uses ``rewards`` (already normalised by group), and ``log_probs`` and ``ref_log_probs`` where a
    KL cost is asked for (``--kl-coef``), which is added as ``kl``.
    """
    if args.custom_advantage_function_path:
        load_function(args.custom_advantage_function_path)(args, rollout_data)
        return
    whole_masks = rollout_data["loss_masks"]
    lengths = list(
        zip(rollout_data["total_lengths"], rollout_data["response_lengths"], strict=True)
    )
    kl = [torch.zeros_like(mask) for mask in whole_masks]
    if args.kl_coef != 0:
        pairs = zip(rollout_data["log_probs"], rollout_data["ref_log_probs"], strict=True)
        local = [compute_approx_kl(p, base, args.kl_loss_type) for p, base in pairs]
        rollout_data["kl"] = local
        kl = [all_gather_with_cp(k, *length) for k, length in zip(local, lengths, strict=True)]
    rewards = torch.tensor(rollout_data["rewards"], dtype=torch.float32)
    whole = _estimate(args, rewards, kl, whole_masks, rollout_data)
    local_of = [
        slice_log_prob_with_cp(a, *length) for a, length in zip(whole, lengths, strict=True)
    ]
    if args.normalize_advantages:
        masks = [
            slice_log_prob_with_cp(m, *length)
            for m, length in zip(whole_masks, lengths, strict=True)
        ]
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        local_of = masked_whiten(local_of, masks, group)
    rollout_data["advantages"] = rollout_data["returns"] = local_of


def _estimate(
    args: Namespace,
    rewards: torch.Tensor,
    kl: list[torch.Tensor],
    masks: list[torch.Tensor],
    data: RolloutBatch,
) -> list[torch.Tensor]:
    """The estimator named by ``--advantage-estimator``, on whole responses."""
    name = args.advantage_estimator
    if name in ("grpo", "gspo", "cispo"):
        return estimators.get_grpo_returns(rewards, kl)
    if name == "reinforce_plus_plus":
        return estimators.get_reinforce_plus_plus_returns(
            rewards,
            kl,
            masks,
            data["response_lengths"],
            data["total_lengths"],
            args.kl_coef,
            args.gamma,
        )
    if name == "reinforce_plus_plus_baseline":
        return estimators.get_reinforce_plus_plus_baseline_advantages(
            rewards, kl, masks, args.kl_coef
        )
    raise NotImplementedError(
        f"advantage_estimator={name!r} needs a critic, which is not there yet"
    )
