"""DeepSeek-V3 and Moonlight: a Megatron parameter from Hugging Face tensors."""

from __future__ import annotations

from typing import Any

import torch

from slime.trainer.hf_to_megatron.common import SafetensorReader, family_tensor
from slime.trainer.layer_rules import DEEPSEEK


def deepseek_hf_tensor(name: str, reader: SafetensorReader, config: Any) -> torch.Tensor:
    """Multi-latent attention; experts with a routing bias and shared experts."""
    return family_tensor(DEEPSEEK, name, reader, config)
