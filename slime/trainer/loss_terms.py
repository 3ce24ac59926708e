"""What the losses share: their types, and values of the tokens a rank holds."""

from __future__ import annotations

from collections.abc import Callable

import torch

from slime.trainer.cp_utils import gather_responses, slice_responses
from slime.trainer.micro_batch import MicroBatch

Metrics = dict[str, torch.Tensor]
Reducer = Callable[[torch.Tensor], torch.Tensor]


def local_mask(micro_batch: MicroBatch) -> torch.Tensor:
    """The loss mask of the tokens held here, flat."""
    return torch.cat(local_parts(micro_batch, micro_batch.of("loss_masks")))


def local_parts(micro_batch: MicroBatch, whole: list[torch.Tensor]) -> list[torch.Tensor]:
    """This context-parallel rank's parts of whole responses of the micro-batch's samples."""
    return slice_responses(
        whole, micro_batch.of("total_lengths"), micro_batch.of("response_lengths")
    )


def split_local(micro_batch: MicroBatch, flat: torch.Tensor) -> list[torch.Tensor]:
    """Values [n] of the tokens held here, one tensor per sample."""
    masks = local_parts(micro_batch, micro_batch.of("loss_masks"))
    return list(flat.split([len(mask) for mask in masks]))


def whole_responses(micro_batch: MicroBatch, flat: torch.Tensor) -> list[torch.Tensor]:
    """The same over all context-parallel ranks: whole responses; differentiable."""
    return gather_responses(
        split_local(micro_batch, flat),
        micro_batch.of("total_lengths"),
        micro_batch.of("response_lengths"),
    )
