"""The critic's output: values of response tokens, and their loss."""

from __future__ import annotations

from argparse import Namespace

import torch

from slime.algorithms.losses import compute_value_loss
from slime.trainer.cp_utils import cp_group
from slime.trainer.loss_terms import Metrics, Reducer, local_mask
from slime.trainer.micro_batch import MicroBatch, held_positions, response_rows


def get_values(
    logits: torch.Tensor,
    *,
    args: Namespace,
    unconcat_tokens: list[torch.Tensor],
    total_lengths: list[int],
    response_lengths: list[int],
    with_entropy: bool = False,
    non_loss_data: bool = True,
) -> dict[str, list[torch.Tensor]]:
    """The value before each response token, cut out of the critic's packed output.

    Args:
        logits: [1, t, 1]: the samples end to end, this context-parallel rank's part.
        unconcat_tokens: the samples' tokens, whole.
        with_entropy, non_loss_data: taken as the log-prob functions take them; no effect.

    Returns:
        ``values``: per sample the part [n] of [response_length] that this rank holds.
    """
    del args, with_entropy, non_loss_data
    for tokens, total in zip(unconcat_tokens, total_lengths, strict=True):
        if len(tokens) != total:
            raise ValueError(f"{len(tokens)} tokens of a sample with total_length {total}")
    group, totals = cp_group(), torch.tensor(total_lengths)
    positions, held = held_positions(totals, group.size(), group.rank())
    rows = response_rows(positions, held, totals, torch.tensor(response_lengths))
    sample = torch.arange(len(totals)).repeat_interleave(held)[rows]
    values = logits[0, :, 0].float()[rows.to(logits.device)]
    return {"values": list(values.split(sample.bincount(minlength=len(totals)).tolist()))}


def values_function(
    args: Namespace, micro_batch: MicroBatch, output: torch.Tensor, non_loss_data: bool = True
) -> dict[str, list[torch.Tensor]]:
    """:func:`get_values` of a micro-batch: what the forward-only schedule calls."""
    return get_values(
        output,
        args=args,
        unconcat_tokens=micro_batch.of("tokens"),
        total_lengths=micro_batch.of("total_lengths"),
        response_lengths=micro_batch.of("response_lengths"),
        non_loss_data=non_loss_data,
    )


def value_loss(
    args: Namespace, micro_batch: MicroBatch, output: torch.Tensor, reduce: Reducer
) -> tuple[torch.Tensor, Metrics]:
    """The clipped value loss against ``returns``: (sum over samples, metric sums).

    The old values are those before training; without stored ones the present ones are the old ones.
    """
    keep = local_mask(micro_batch) != 0
    values = torch.cat(values_function(args, micro_batch, output)["values"])
    # Whatever stands at a masked position, NaN included, is cut off here from loss and gradients.
    values = torch.where(keep, values, 0.0)
    old = torch.where(keep, micro_batch.flat("values"), 0.0)
    returns = torch.where(keep, micro_batch.flat("returns"), 0.0)
    per_token, clipped = compute_value_loss(values, old, returns, args.value_clip)
    loss = reduce(per_token)
    error = (values - returns).detach().square()
    return loss, {
        "value_loss": loss.detach(),
        "value_clipfrac": reduce(clipped),
        "value_error": reduce(error),
        "values": reduce(values.detach()),
        "returns": reduce(returns),
    }
