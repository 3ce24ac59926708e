"""Run micro-batches through the model: forward for log-probs, and backward for a step."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.pipeline_parallel import get_forward_backward_func

from slime.trainer.loss import loss_function
from slime.trainer.metrics import from_last_stage, reduce_train_step_metrics
from slime.trainer.micro_batch import MicroBatch, iterators, micro_batches_of_step
from slime.trainer.response_logits import forward
from slime.trainer.rollout_tensors import RolloutBatch
from slime.trainer.routing_replay import RoutingReplay

OutputFunction = Callable[..., Any]


def _run(
    args: Namespace,
    model: list[DistributedDataParallel],
    micro_batches: list[MicroBatch],
    output_function: OutputFunction,
    forward_only: bool,
    replay: RoutingReplay | None,
) -> list[Any]:
    """Run Megatron's schedule; gives what ``output_function`` reported on the last stage."""

    def forward_step(
        iterator: Iterator[MicroBatch], chunk: DistributedDataParallel
    ) -> tuple[Any, OutputFunction]:
        micro_batch = next(iterator)
        if replay is not None:
            replay.before_forward(chunk, micro_batch)
        output = forward(args, chunk, micro_batch)
        if replay is not None:
            replay.after_forward()
        return output, partial(output_function, args, micro_batch)

    return get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=iterators(micro_batches, len(model)),
        model=model,
        num_microbatches=len(micro_batches),
        seq_length=micro_batches[0].tokens.size(1),
        micro_batch_size=1,
        forward_only=forward_only,
        collect_non_loss_data=forward_only,
    )


@torch.no_grad()
def forward_outputs(
    args: Namespace,
    model: list[DistributedDataParallel],
    data: RolloutBatch,
    output_function: OutputFunction,
    replay: RoutingReplay | None = None,
) -> dict[str, list[torch.Tensor]]:
    """Per-token lists of every sample's response under the present weights, in the order of the
    rollout data: ``log_probs``, ``values``, as ``output_function`` names them.

    Empty except on the last pipeline stage, the only one that has outputs.
    """
    result: dict[str, list[torch.Tensor]] = {}
    for step in range(len(data["num_microbatches"])):
        micro_batches = micro_batches_of_step(args, data, step)
        outputs = _run(args, model, micro_batches, output_function, True, replay)
        for micro_batch, output in zip(micro_batches, outputs, strict=False):
            for key, values in output.items():
                whole = result.setdefault(key, [torch.empty(0)] * len(data["tokens"]))
                for sample, value in zip(micro_batch.samples, values, strict=True):
                    whole[sample] = value
    return result


def forward_backward(
    args: Namespace,
    model: list[DistributedDataParallel],
    data: RolloutBatch,
    step: int,
    replay: RoutingReplay | None = None,
) -> dict[str, float]:
    """Gradients of one optimizer step over all its micro-batches and ranks; the step's metrics.

    The gradients are summed into the DDP buffers, reduced over all ranks and ready for the
    optimizer, which
    must have been zeroed: what is left in ``param.grad`` would be added to the buffers.
    """
    for chunk in model:
        chunk.zero_grad_buffer()
    micro_batches = micro_batches_of_step(args, data, step)
    reports = _run(args, model, micro_batches, loss_function, False, replay)
    metrics = None
    if parallel_state.is_pipeline_last_stage(ignore_virtual=True):
        metrics = reduce_train_step_metrics(
            reports,
            calculate_per_token_loss=args.calculate_per_token_loss,
            step_global_batch_size=data["global_batch_sizes"][step],
            cp_size=args.context_parallel_size,
            dp_with_cp_group=parallel_state.get_data_parallel_group(with_context_parallel=True),
        )
    return from_last_stage(metrics)
