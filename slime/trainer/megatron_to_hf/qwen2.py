"""Qwen2, Qwen3 and Llama (dense): Hugging Face tensors from a whole Megatron parameter."""

from __future__ import annotations

from argparse import Namespace

import torch

from slime.trainer.layer_rules import DENSE
from slime.trainer.megatron_to_hf.common import NamedTensors, family_tensors


def convert_qwen2_to_hf(args: Namespace, name: str, param: torch.Tensor) -> NamedTensors:
    """See :func:`slime.trainer.megatron_to_hf.common.family_tensors`."""
    return family_tensors(DENSE, args, name, param)
