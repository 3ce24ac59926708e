"""From per-token values to one number that does not depend on how samples were batched.

A reducer gives a SUM over the samples of a micro-batch. Sums add up over micro-batches and ranks,
and are divided once, by a count of the whole global batch; so neither the value nor the gradient
can depend on micro-batch size, data parallelism or accumulation. Masked positions are selected out
(`where`), never multiplied out, so that a NaN under the mask stays there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist


def masked_sum(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sum of values * mask where the mask is not zero. Same shapes; a scalar."""
    return (torch.where(mask != 0, values, 0.0) * mask).sum()


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the unmasked positions; 0 when there is none."""
    return masked_sum(values, mask) / mask.sum().clamp(min=1)


def sample_sum_reducer(
    loss_masks: list[torch.Tensor],
    sample_denoms: list[torch.Tensor] | torch.Tensor | None = None,
    calculate_per_token_loss: bool = False,
    full_loss_masks: list[torch.Tensor] | None = None,
) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function [n tokens of all samples] -> sum over samples of (masked sum / denominator).

    Args:
        loss_masks: one mask per sample: the positions this rank holds.
        sample_denoms: denominator of each sample; by default the sum of its full mask. For a
            rollout that fanned out into several samples it is the mask sum of the whole rollout, so
            that the rollout counts once.
        calculate_per_token_loss: no denominators: the plain masked sum.
        full_loss_masks: the masks before context-parallel slicing; by default ``loss_masks``.
    """
    mask = torch.cat(loss_masks).float()
    weight = mask
    if not calculate_per_token_loss:
        if sample_denoms is None:
            sample_denoms = [m.sum() for m in full_loss_masks or loss_masks]
        denoms = torch.as_tensor(sample_denoms, dtype=torch.float32, device=mask.device)
        lengths = torch.tensor([m.numel() for m in loss_masks], device=mask.device)
        weight = mask / denoms.clamp(min=1).repeat_interleave(lengths)
    keep = mask != 0

    def reduce(values: torch.Tensor) -> torch.Tensor:
        return (torch.where(keep, values, 0.0) * weight).sum()

    return reduce


def masked_whiten(
    values: list[torch.Tensor], masks: list[torch.Tensor], group: dist.ProcessGroup | None = None
) -> list[torch.Tensor]:
    """(x - mean) / std over all unmasked positions of all ranks of ``group``; 0 where masked.

    Two passes in float64: a constant batch gives exactly zeros rather than amplified rounding.

    Args:
        values, masks: one tensor per sample, same lengths.
    """
    if not values and group is None:
        return []
    device = values[0].device if values else torch.device("cpu")
    flat = torch.cat([v.double() for v in values]) if values else torch.zeros(0, device=device)
    mask = torch.cat([m != 0 for m in masks]) if masks else torch.zeros(0, dtype=torch.bool)
    flat = torch.where(mask, flat, 0.0)
    count, mean = _all_reduce(mask.sum().double(), group), _all_reduce(flat.sum(), group)
    mean = mean / count.clamp(min=1)
    deviation = torch.where(mask, flat - mean, 0.0)
    variance = _all_reduce(deviation.square().sum(), group) / count.clamp(min=1)
    white = (deviation / (variance.sqrt() + 1e-8)).float()
    return list(white.split([v.numel() for v in values]))


def _all_reduce(value: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    if group is not None and group.size() > 1:
        dist.all_reduce(value, group=group)
    return value
