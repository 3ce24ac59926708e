"""Run a model chunk on a micro-batch, with logits at the response positions only.

The output layer of a small model is a large part of its work, and its logits most of its memory;
prompt tokens need neither. The rows are chosen before the output layer, except under sequence
parallelism, where that layer itself gathers the sequence.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel

from slime.trainer.micro_batch import MicroBatch
from slime.trainer.model_provider import unwrap
from slime.trainer.packed_attention import gather_rows
from slime.trainer.prediction import PredictionModel, prediction_losses

_WHOLE = ("custom_loss", "value_loss")


def forward(
    args: Namespace, chunk: DistributedDataParallel, micro_batch: MicroBatch
) -> torch.Tensor:
    """The chunk's output: hidden states, or on the last stage logits [1, n, v / tp].

    n is the number of response tokens held here; all tokens with a custom loss, which may want any,
    and from a critic, whose output is small.
    """
    model = unwrap(chunk)
    wanted = getattr(model, "post_process", False) and args.loss_type not in _WHOLE
    if not wanted:
        return _run(chunk, micro_batch)
    logits = _response_logits(args, chunk, micro_batch)
    if isinstance(model, PredictionModel):
        micro_batch.prediction_losses[:] = prediction_losses(args, model, micro_batch)
    return logits


def _response_logits(
    args: Namespace, chunk: DistributedDataParallel, micro_batch: MicroBatch
) -> torch.Tensor:
    rows = micro_batch.logit_rows
    if args.sequence_parallel:
        return gather_rows(_run(chunk, micro_batch)[0], rows)[None]

    def select(layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
        return gather_rows(inputs[0], rows), *inputs[1:]

    hook = unwrap(chunk).output_layer.register_forward_pre_hook(select)
    try:
        return _run(chunk, micro_batch)
    finally:
        hook.remove()


def _run(chunk: DistributedDataParallel, micro_batch: MicroBatch) -> torch.Tensor:
    return chunk(
        input_ids=micro_batch.tokens,
        position_ids=micro_batch.position_ids,
        attention_mask=None,
        packed_seq_params=micro_batch.packed_seq_params,
    )
