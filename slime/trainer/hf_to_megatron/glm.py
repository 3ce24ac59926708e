"""GLM-4 (dense) and GLM-4.5 (experts): a Megatron parameter from Hugging Face tensors."""

from __future__ import annotations

from typing import Any

import torch

from slime.trainer.hf_to_megatron.common import SafetensorReader, family_tensor
from slime.trainer.layer_rules import GLM4, GLM4_MOE


def glm4_hf_tensor(name: str, reader: SafetensorReader, config: Any) -> torch.Tensor:
    """Norms also after attention and feed-forward; gate and up are one tensor already."""
    return family_tensor(GLM4, name, reader, config)


def glm4_moe_hf_tensor(name: str, reader: SafetensorReader, config: Any) -> torch.Tensor:
    """Experts with a routing bias and shared experts, after the first dense layers."""
    return family_tensor(GLM4_MOE, name, reader, config)
