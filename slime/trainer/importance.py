"""Importance weights in the policy loss: the built-in one, and functions for
``--custom-tis-function-path``.

A function is named by what it does and where it takes the ratio: ``truncate_by_token`` (what
``--use-tis`` does by itself), ``mask_by_sequence``, ``reject_by_geometric_mean``, ... Its bounds
are ``--tis-clip-low`` and ``--tis-clip``.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Protocol

import torch

from slime.algorithms.importance import importance_weights, mismatch_metrics
from slime.hooks.loading import load_function
from slime.trainer.cp_utils import gather_responses, slice_responses
from slime.trainer.loss_terms import Reducer, local_parts, split_local, whole_responses
from slime.trainer.micro_batch import MicroBatch

Flat = dict[str, torch.Tensor]


class Correction(Protocol):
    """A function of ``--custom-tis-function-path``.

    It gets the per-token loss [n] and, per sample, the log-probs that this context-parallel rank
    holds and the whole loss masks. It gives the corrected loss [n], masks that are 0 where a token
    is to be left out, and per-token values [n] to be averaged as metrics.
    """

    def __call__(
        self,
        args: Namespace,
        *,
        pg_loss: torch.Tensor,
        train_log_probs: list[torch.Tensor],
        rollout_log_probs: list[torch.Tensor],
        loss_masks: list[torch.Tensor],
        total_lengths: list[int],
        response_lengths: list[int],
        **kwargs: Any,
    ) -> tuple[torch.Tensor, list[torch.Tensor], Flat]:
        """See the class."""
        ...


def _correction(level: str, mode: str) -> Correction:
    def correct(
        args: Namespace,
        *,
        pg_loss: torch.Tensor,
        train_log_probs: list[torch.Tensor],
        rollout_log_probs: list[torch.Tensor],
        loss_masks: list[torch.Tensor],
        total_lengths: list[int],
        response_lengths: list[int],
        **kwargs: Any,
    ) -> tuple[torch.Tensor, list[torch.Tensor], Flat]:
        weights, outside = importance_weights(
            gather_responses(train_log_probs, total_lengths, response_lengths),
            gather_responses(rollout_log_probs, total_lengths, response_lengths),
            loss_masks,
            level,
            mode,
            args.tis_clip_low,
            args.tis_clip,
        )
        masks = loss_masks
        if mode != "truncate":
            masks = [mask * (1 - out) for mask, out in zip(loss_masks, outside, strict=True)]
        held, clipped = (
            torch.cat(slice_responses(whole, total_lengths, response_lengths))
            for whole in (weights, outside)
        )
        return pg_loss * held, masks, {"tis": held, "tis_clipfrac": clipped}

    correct.__doc__ = f"{mode} by the ratio of a {level}: slime.algorithms.importance."
    return correct


truncate_by_token = _correction("token", "truncate")
truncate_by_sequence = _correction("sequence", "truncate")
truncate_by_geometric_mean = _correction("geometric", "truncate")
mask_by_token = _correction("token", "mask")
mask_by_sequence = _correction("sequence", "mask")
mask_by_geometric_mean = _correction("geometric", "mask")
reject_by_token = _correction("token", "reject")
reject_by_sequence = _correction("sequence", "reject")
reject_by_geometric_mean = _correction("geometric", "reject")


def correct_loss(
    args: Namespace,
    micro_batch: MicroBatch,
    loss: torch.Tensor,
    train: torch.Tensor,
    rollout: torch.Tensor,
) -> tuple[torch.Tensor, list[torch.Tensor], Flat]:
    """The loss [n] corrected as ``--use-tis`` says, the loss masks left, and metrics [n]."""
    path = args.custom_tis_function_path
    function: Correction = load_function(path) if path else truncate_by_token
    corrected, masks, values = function(
        args,
        pg_loss=loss,
        train_log_probs=split_local(micro_batch, train),
        rollout_log_probs=split_local(micro_batch, rollout),
        loss_masks=micro_batch.of("loss_masks"),
        total_lengths=micro_batch.of("total_lengths"),
        response_lengths=micro_batch.of("response_lengths"),
    )
    keep = torch.cat(local_parts(micro_batch, masks)) != 0
    return torch.where(keep, corrected, 0.0), masks, values


def mismatch(
    micro_batch: MicroBatch, train: torch.Tensor, rollout: torch.Tensor, reduce: Reducer
) -> Flat:
    """``--get-mismatch-metrics``: sums over samples, see
    :func:`slime.algorithms.importance.mismatch_metrics`.
    """
    values = mismatch_metrics(
        whole_responses(micro_batch, train),
        whole_responses(micro_batch, rollout),
        micro_batch.of("loss_masks"),
    )
    return {name: reduce(torch.cat(local_parts(micro_batch, v))) for name, v in values.items()}
