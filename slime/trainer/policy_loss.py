"""The policy loss: surrogate, corrections for off-policy samples, entropy and KL terms.

It is blind to the algorithm's name except in the one table of surrogates below.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

import torch

from slime.algorithms.kl import compute_approx_kl, compute_gspo_kl, compute_opsm_mask
from slime.algorithms.losses import compute_cispo_loss, compute_policy_loss
from slime.hooks.loading import load_function
from slime.trainer.importance import correct_loss, mismatch
from slime.trainer.loss_terms import (
    Metrics,
    Reducer,
    local_mask,
    split_local,
    whole_responses,
)
from slime.trainer.micro_batch import MicroBatch
from slime.trainer.response_log_probs import response_log_probs

Loss = tuple[torch.Tensor, Metrics]
# Per-token values of the rollout data that are averaged as metrics: key in the data -> metric.
_LOGGED = {
    "kl": "kl_cost",
    "opd_kl": "opd_kl",
    "values": "values",
    "returns": "returns",
    "entropy": "rollout_entropy",
}


def policy_loss(
    args: Namespace, micro_batch: MicroBatch, logits: torch.Tensor, reduce: Reducer
) -> Loss:
    """The clipped policy loss with entropy and KL terms: (sum over samples, metric sums).

    pg_loss - entropy_coef * entropy + kl_loss_coef * KL(policy || reference), where pg_loss is the
    surrogate, masked by OPSM and weighted by the importance weights where asked for.
    """
    keep = local_mask(micro_batch) != 0
    new, entropy = response_log_probs(args, logits, micro_batch, True, args.entropy_coef != 0)
    # Whatever stands at a masked position, NaN included, is cut off here from values and gradients.
    new = torch.where(keep, new, 0.0)

    def flat(key: str) -> torch.Tensor:
        return torch.where(keep, micro_batch.flat(key), 0.0)

    rollout = flat("rollout_log_probs") if "rollout_log_probs" in micro_batch.data else None
    # Without stored log-probs this is the first and only step on this data: the policy is the old
    # policy.
    trainer_old = flat("log_probs") if "log_probs" in micro_batch.data else new.detach()
    old = rollout if args.use_rollout_logprobs and rollout is not None else trainer_old
    pg_loss, metrics = _policy_gradient(
        args, micro_batch, reduce, new, old, flat("advantages"), (trainer_old, rollout)
    )
    assert entropy is not None
    entropy_sum = reduce(entropy)
    loss = pg_loss - args.entropy_coef * entropy_sum if args.entropy_coef != 0 else pg_loss
    metrics.update(pg_loss=pg_loss.detach(), entropy=entropy_sum.detach())
    if "ref_log_probs" in micro_batch.data:
        kl, raw = _reference_kl(args, reduce, new, old, flat("ref_log_probs"))
        metrics.update(kl=kl.detach(), raw_kl=raw.detach())
        loss = loss + args.kl_loss_coef * kl if args.use_kl_loss else loss
    for key, name in _LOGGED.items():
        if key in micro_batch.data:
            metrics[name] = reduce(flat(key))
    return loss, metrics


def _policy_gradient(
    args: Namespace,
    micro_batch: MicroBatch,
    reduce: Reducer,
    new: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    engines: tuple[torch.Tensor, torch.Tensor | None],
) -> Loss:
    """The policy-gradient term. ``engines``: trainer's and engines' log-probs of the old policy."""
    ppo_kl, extra = _log_ratio(args, micro_batch, new, old, advantages)
    per_token, clipped = _surrogate(args, ppo_kl, new, advantages)
    if "opsm_mask" in extra:
        per_token = per_token * extra.pop("opsm_mask")
    metrics: Metrics = {"clipfrac": reduce(clipped), "ppo_kl": reduce(ppo_kl.detach())}
    metrics["advantages"] = reduce(advantages)
    metrics.update({key: reduce(value) for key, value in extra.items()})
    masks = micro_batch.of("loss_masks")
    trainer_old, rollout = engines
    if rollout is not None:
        metrics["train_rollout_logprob_abs_diff"] = reduce((trainer_old - rollout).abs())
        if args.get_mismatch_metrics:
            metrics.update(mismatch(micro_batch, trainer_old, rollout, reduce))
        if args.use_tis:
            per_token, masks, tis = correct_loss(args, micro_batch, per_token, trainer_old, rollout)
            metrics.update({key: reduce(value) for key, value in tis.items()})
    return _pg_reducer(args, micro_batch, masks, reduce)(per_token), metrics


def _log_ratio(
    args: Namespace,
    micro_batch: MicroBatch,
    new: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """log p_old - log p, per token or per sequence (GSPO); and extra per-token values."""
    if args.advantage_estimator != "gspo" and not args.use_opsm:
        return old - new, {}
    masks = micro_batch.of("loss_masks")
    whole_new, whole_old = whole_responses(micro_batch, new), whole_responses(micro_batch, old)
    extra = {}
    if args.use_opsm:
        mask, _ = compute_opsm_mask(
            args, whole_new, whole_old, split_local(micro_batch, advantages), masks
        )
        extra = {"opsm_mask": mask, "opsm_dropped": 1.0 - mask}
    if args.advantage_estimator != "gspo":
        return old - new, extra
    return compute_gspo_kl(whole_new, whole_old, split_local(micro_batch, new), masks), extra


def _surrogate(
    args: Namespace, ppo_kl: torch.Tensor, log_probs: torch.Tensor, advantages: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    high = args.eps_clip if args.eps_clip_high is None else args.eps_clip_high
    if args.advantage_estimator == "cispo":
        return compute_cispo_loss(ppo_kl, log_probs, advantages, args.eps_clip, high)
    return compute_policy_loss(ppo_kl, advantages, args.eps_clip, high, args.eps_clip_c)


def _reference_kl(
    args: Namespace, reduce: Reducer, new: torch.Tensor, old: torch.Tensor, ref: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The KL to the reference as the loss takes it, and as it is without importance weights."""
    raw = reduce(compute_approx_kl(new, ref, args.kl_loss_type))
    if not args.use_unbiased_kl:
        return raw, raw
    ratio = torch.exp(new - old)
    return reduce(compute_approx_kl(new, ref, args.kl_loss_type, ratio)), raw


def _pg_reducer(
    args: Namespace, micro_batch: MicroBatch, masks: list[torch.Tensor], reduce: Reducer
) -> Reducer:
    """``--custom-pg-loss-reducer-function-path`` replaces the policy-gradient reducer only."""
    if not args.custom_pg_loss_reducer_function_path:
        return reduce
    make: Callable[..., Reducer] = load_function(args.custom_pg_loss_reducer_function_path)
    return make(
        micro_batch.of("total_lengths"),
        micro_batch.of("response_lengths"),
        masks,
        args.calculate_per_token_loss,
    )
