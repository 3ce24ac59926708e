"""A Hugging Face checkpoint -> a torch_dist checkpoint: weights only.

Nothing is made but this rank's share of the weights: no buffers of gradients, no optimizer.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import torch
import torch.distributed as dist

from slime.trainer import checkpoint
from slime.trainer.checkpoint_content import TrainState
from slime.trainer.hf_weights import load_hf_weights
from slime.trainer.model_provider import build_model_chunks
from slime.trainer.optimizer import to_half_precision


class _Unwrapped(torch.nn.Module):
    """Stands where Megatron's data-parallel wrapper stands in training."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module, self.config = module, module.config


def convert(args: Namespace) -> None:
    """Write ``args.save`` as a run's checkpoint of rollout 0; collective.

    Raises:
        CheckpointError: ``args.hf_checkpoint`` is not the model that ``args`` describe, or the
            checkpoint could not be written.
    """
    chunks: list[Any] = [
        _Unwrapped(chunk) for chunk in to_half_precision(args, build_model_chunks(args))
    ]
    load_hf_weights(args, chunks, args.hf_checkpoint)
    if dist.get_rank() == 0:
        print(f"Write {args.save}", file=sys.stderr, flush=True)
    extra = {"rollout_id": 0, "weight_version": 0}
    checkpoint.save(args, TrainState(chunks, None, None), args.save, 0, extra)
