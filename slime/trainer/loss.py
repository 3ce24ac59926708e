"""The loss of a micro-batch, from the functions of slime.algorithms.

The loss code is blind to the algorithm's name except where a table below names it: an algorithm is
an advantage estimator, a surrogate and its options.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
from megatron.core import parallel_state

from slime.algorithms.kl import compute_approx_kl, compute_gspo_kl, compute_opsm_mask
from slime.algorithms.log_probs import calculate_log_probs_and_entropy
from slime.algorithms.losses import (
    compute_cispo_loss,
    compute_policy_loss,
    truncated_importance_weights,
)
from slime.hooks.loading import load_function
from slime.trainer.cp_utils import (
    all_gather_with_cp,
    get_sum_of_sample_mean,
    slice_log_prob_with_cp,
)
from slime.trainer.micro_batch import MicroBatch

Metrics = dict[str, torch.Tensor]
Reducer = Callable[[torch.Tensor], torch.Tensor]


def response_log_probs(
    args: Namespace,
    logits: torch.Tensor,
    micro_batch: MicroBatch,
    entropy: bool,
    entropy_grad: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probs [n] (and entropies [n]) of the response tokens, at the rollout temperature.

    Args:
        logits: [1, n, v / tp] at the positions that predict them.
    """
    return calculate_log_probs_and_entropy(
        logits[0],
        micro_batch.targets,
        parallel_state.get_tensor_model_parallel_group(),
        with_entropy=entropy,
        chunk_size=args.log_probs_chunk_size,
        with_entropy_grad=entropy_grad,
        temperature=args.rollout_temperature,
        vocab_size=args.hf_architecture["vocab_size"],
    )


def policy_loss(
    args: Namespace, micro_batch: MicroBatch, logits: torch.Tensor, reduce: Reducer
) -> tuple[torch.Tensor, Metrics]:
    """The clipped policy loss with entropy and KL terms: (sum over samples, metric sums)."""
    keep = _local_mask(micro_batch) != 0
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
    advantages = flat("advantages")
    ppo_kl, extra = _log_ratio(args, micro_batch, new, old, advantages)
    per_token, clipped = _surrogate(args, ppo_kl, new, advantages)
    if "opsm_mask" in extra:
        per_token = per_token * extra.pop("opsm_mask")
    metrics: Metrics = {"clipfrac": reduce(clipped), "ppo_kl": reduce(ppo_kl.detach())}
    metrics.update({key: reduce(value) for key, value in extra.items()})
    if rollout is not None:
        metrics["train_rollout_logprob_abs_diff"] = reduce((trainer_old - rollout).abs())
        if args.use_tis:
            per_token, tis = _importance_weighted(
                args, micro_batch, per_token, trainer_old, rollout
            )
            metrics.update({key: reduce(value) for key, value in tis.items()})
    pg_loss = _pg_reducer(args, micro_batch, reduce)(per_token)
    assert entropy is not None
    entropy_sum = reduce(entropy)
    loss = pg_loss - args.entropy_coef * entropy_sum if args.entropy_coef != 0 else pg_loss
    metrics.update(pg_loss=pg_loss.detach(), entropy=entropy_sum.detach())
    if "ref_log_probs" in micro_batch.data:
        ratio = torch.exp(-ppo_kl) if args.use_unbiased_kl else None
        kl = reduce(compute_approx_kl(new, flat("ref_log_probs"), args.kl_loss_type, ratio))
        metrics["kl"] = kl.detach()
        loss = loss + args.kl_loss_coef * kl if args.use_kl_loss else loss
    return loss, metrics


def _local_mask(micro_batch: MicroBatch) -> torch.Tensor:
    """The loss mask of the tokens held here, flat."""
    rows = zip(
        micro_batch.of("loss_masks"),
        micro_batch.of("total_lengths"),
        micro_batch.of("response_lengths"),
        strict=True,
    )
    return torch.cat(
        [slice_log_prob_with_cp(mask, total, response) for mask, total, response in rows]
    )


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
    sizes = [len(part) for part in micro_batch.of("advantages")]
    lengths = list(
        zip(micro_batch.of("total_lengths"), micro_batch.of("response_lengths"), strict=True)
    )
    masks = micro_batch.of("loss_masks")

    def whole(values: torch.Tensor) -> list[torch.Tensor]:
        return [
            all_gather_with_cp(v, *n) for v, n in zip(values.split(sizes), lengths, strict=True)
        ]

    whole_new, whole_old = whole(new), whole(old)
    extra = {}
    if args.use_opsm:
        mask, _ = compute_opsm_mask(
            args, whole_new, whole_old, list(advantages.split(sizes)), masks
        )
        extra = {"opsm_mask": mask, "opsm_dropped": 1.0 - mask}
    if args.advantage_estimator != "gspo":
        return old - new, extra
    return compute_gspo_kl(whole_new, whole_old, list(new.split(sizes)), masks), extra


def _surrogate(
    args: Namespace, ppo_kl: torch.Tensor, log_probs: torch.Tensor, advantages: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    high = args.eps_clip if args.eps_clip_high is None else args.eps_clip_high
    if args.advantage_estimator == "cispo":
        return compute_cispo_loss(ppo_kl, log_probs, advantages, args.eps_clip, high)
    return compute_policy_loss(ppo_kl, advantages, args.eps_clip, high, args.eps_clip_c)


def _importance_weighted(
    args: Namespace,
    micro_batch: MicroBatch,
    loss: torch.Tensor,
    train: torch.Tensor,
    rollout: torch.Tensor,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss times its truncated importance weight, and the weight's statistics per token."""
    if args.custom_tis_function_path:
        return load_function(args.custom_tis_function_path)(
            args,
            pg_loss=loss,
            train_log_probs=train,
            rollout_log_probs=rollout,
            micro_batch=micro_batch,
        )
    weights, clipped = truncated_importance_weights(
        train, rollout, args.tis_clip_low, args.tis_clip
    )
    return loss * weights, {"tis": weights, "tis_clipfrac": clipped}


def _pg_reducer(args: Namespace, micro_batch: MicroBatch, reduce: Reducer) -> Reducer:
    """``--custom-pg-loss-reducer-function-path`` replaces the policy-gradient reducer only."""
    if not args.custom_pg_loss_reducer_function_path:
        return reduce
    make = load_function(args.custom_pg_loss_reducer_function_path)
    return make(
        micro_batch.of("total_lengths"),
        micro_batch.of("response_lengths"),
        micro_batch.of("loss_masks"),
        args.calculate_per_token_loss,
    )


def sft_loss(
    args: Namespace, micro_batch: MicroBatch, logits: torch.Tensor, reduce: Reducer
) -> tuple[torch.Tensor, Metrics]:
    """Negative log-likelihood of unmasked response tokens: (sum over samples, metric sums)."""
    keep = _local_mask(micro_batch) != 0
    log_probs, _ = response_log_probs(args, logits, micro_batch, False, False)
    loss = reduce(-torch.where(keep, log_probs, 0.0))
    return loss, {}


LOSSES: dict[str, Callable[..., tuple[torch.Tensor, Metrics]]] = {
    "policy_loss": policy_loss,
    "sft_loss": sft_loss,
}


def loss_function(
    args: Namespace, micro_batch: MicroBatch, output: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """What Megatron's schedule calls on the last stage: (loss share, count, metrics).

    The loss is this micro-batch's share of the global batch's: its sum over samples divided by the
    number of rollouts of the step (or by its unmasked tokens with ``--calculate-per-token-loss``).
    """
    masks = micro_batch.of("loss_masks")
    per_token = args.calculate_per_token_loss
    reduce = get_sum_of_sample_mean(
        micro_batch.of("total_lengths"),
        micro_batch.of("response_lengths"),
        masks,
        torch.tensor(micro_batch.of("sample_denoms")),
        per_token,
    )
    if args.loss_type == "custom_loss":
        compute = load_function(args.custom_loss_function_path)
    else:
        compute = LOSSES[args.loss_type]
    total, metrics = compute(args, micro_batch, output, reduce)
    metrics["loss"] = total.detach()
    denominators = micro_batch.data["global_num_tokens" if per_token else "global_batch_sizes"]
    tokens = torch.stack([mask.sum() for mask in masks]).sum()
    values = torch.stack([tokens, *(v.detach().float() for v in metrics.values())])
    report = {"keys": list(metrics), "values": values}
    count = torch.zeros((), dtype=torch.int, device=output.device)
    # A step of masked tokens only has no gradient; 0 / 0 would make it NaN.
    return total / max(denominators[micro_batch.step], 1), count, report


def log_probs_function(
    args: Namespace, micro_batch: MicroBatch, output: torch.Tensor, non_loss_data: bool = True
) -> dict[str, list[torch.Tensor]]:
    """What the forward-only schedule calls: ``log_probs``, one tensor per sample."""
    log_probs, _ = response_log_probs(args, output, micro_batch, False, False)
    sizes = [
        len(slice_log_prob_with_cp(mask, total, response))
        for mask, total, response in zip(
            micro_batch.of("loss_masks"),
            micro_batch.of("total_lengths"),
            micro_batch.of("response_lengths"),
            strict=True,
        )
    ]
    return {"log_probs": list(log_probs.split(sizes))}
