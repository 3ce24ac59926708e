"""What the losses share: their types, and the mask of the tokens a rank holds."""

from __future__ import annotations

from collections.abc import Callable

import torch

from slime.trainer.cp_utils import slice_log_prob_with_cp
from slime.trainer.micro_batch import MicroBatch

Metrics = dict[str, torch.Tensor]
Reducer = Callable[[torch.Tensor], torch.Tensor]


def local_mask(micro_batch: MicroBatch) -> torch.Tensor:
    """The loss mask of the tokens held here, flat."""
    return torch.cat(local_parts(micro_batch, micro_batch.of("loss_masks")))


def local_parts(micro_batch: MicroBatch, whole: list[torch.Tensor]) -> list[torch.Tensor]:
    """This context-parallel rank's parts of whole responses of the micro-batch's samples."""
    rows = zip(
        whole, micro_batch.of("total_lengths"), micro_batch.of("response_lengths"), strict=True
    )
    return [slice_log_prob_with_cp(part, total, response) for part, total, response in rows]
