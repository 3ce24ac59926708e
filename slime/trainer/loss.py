"""What Megatron's schedule calls on the last stage: the loss of a micro-batch, and its reports."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from slime.hooks.loading import load_function
from slime.trainer.cp_utils import get_sum_of_sample_mean
from slime.trainer.loss_terms import Metrics, Reducer, local_mask
from slime.trainer.micro_batch import MicroBatch
from slime.trainer.policy_loss import policy_loss
from slime.trainer.response_log_probs import response_log_probs
from slime.trainer.value_loss import value_loss


def sft_loss(
    args: Namespace, micro_batch: MicroBatch, logits: torch.Tensor, reduce: Reducer
) -> tuple[torch.Tensor, Metrics]:
    """Negative log-likelihood of unmasked response tokens: (sum over samples, metric sums)."""
    keep = local_mask(micro_batch) != 0
    log_probs, _ = response_log_probs(args, logits, micro_batch, False, False)
    loss = reduce(-torch.where(keep, log_probs, 0.0))
    return loss, {}


LOSSES: dict[str, Callable[..., tuple[torch.Tensor, Metrics]]] = {
    "policy_loss": policy_loss,
    "sft_loss": sft_loss,
    "value_loss": value_loss,  # the critic's
}


def loss_function(
    args: Namespace, micro_batch: MicroBatch, output: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """(loss share, count, metrics) of one micro-batch.

    The loss is this micro-batch's share of the global batch's: its sum over samples divided by the
    number of rollouts of the step (or by its unmasked tokens with ``--calculate-per-token-loss``).
    With ``--recompute-loss-function`` what the loss keeps for its backward is computed again there.
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
    if args.recompute_loss_function:
        total, metrics = checkpoint(
            compute,
            args,
            micro_batch,
            output,
            reduce,
            use_reentrant=False,
            determinism_check="none",
        )
    else:
        total, metrics = compute(args, micro_batch, output, reduce)
    metrics["loss"] = total.detach()
    if micro_batch.prediction_losses:
        mtp_loss = torch.stack([reduce(part) for part in micro_batch.prediction_losses]).mean()
        metrics["mtp_loss"] = mtp_loss.detach()
        total = total + args.mtp_loss_scaling_factor * mtp_loss
    denominators = micro_batch.data["global_num_tokens" if per_token else "global_batch_sizes"]
    tokens = torch.stack([mask.sum() for mask in masks]).sum()
    values = torch.stack([tokens, *(v.detach().float() for v in metrics.values())])
    report = {"keys": list(metrics), "values": values}
    count = torch.zeros((), dtype=torch.int, device=output.device)
    # A step of masked tokens only has no gradient; 0 / 0 would make it NaN.
    return total / max(denominators[micro_batch.step], 1), count, report
