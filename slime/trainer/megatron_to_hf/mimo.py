"""MiMo: Hugging Face tensors from a whole Megatron parameter."""

from __future__ import annotations

from argparse import Namespace

import torch

from slime.trainer.layer_rules import MIMO
from slime.trainer.megatron_to_hf.common import NamedTensors, family_tensors


def convert_mimo_to_hf(args: Namespace, name: str, param: torch.Tensor) -> NamedTensors:
    """See :func:`slime.trainer.megatron_to_hf.common.family_tensors`."""
    return family_tensors(MIMO, args, name, param)
