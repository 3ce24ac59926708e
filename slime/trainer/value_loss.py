"""The critic's output: values of response tokens, and their loss."""

from __future__ import annotations

from argparse import Namespace

import torch

from slime.algorithms.cp import chunk_length
from slime.algorithms.losses import compute_value_loss
from slime.trainer.cp_utils import cp_group
from slime.trainer.loss_terms import Metrics, Reducer, local_mask
from slime.trainer.micro_batch import MicroBatch, response_rows


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
    group = cp_group()
    cp_size, cp_rank = group.size(), group.rank()
    flat, begin, values = logits[0, :, 0].float(), 0, []
    rows = zip(unconcat_tokens, total_lengths, response_lengths, strict=True)
    for tokens, total, response in rows:
        if len(tokens) != total:
            raise ValueError(f"{len(tokens)} tokens of a sample with total_length {total}")
        at = response_rows(begin, total, response, cp_size, cp_rank)
        values.append(flat[at.to(flat.device)])
        begin += total if cp_size == 1 else 2 * chunk_length(total, cp_size)
    return {"values": values}


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
