"""GLM-4 (dense): Hugging Face tensors from a whole Megatron parameter."""

from __future__ import annotations

from argparse import Namespace

import torch

from slime.trainer.layer_rules import GLM4
from slime.trainer.megatron_to_hf.common import NamedTensors, family_tensors


def convert_glm4_to_hf(args: Namespace, name: str, param: torch.Tensor) -> NamedTensors:
    """See :func:`slime.trainer.megatron_to_hf.common.family_tensors`."""
    return family_tensors(GLM4, args, name, param)
