"""Qwen2, Qwen3, Llama, MiMo (dense) and Qwen3-MoE: a Megatron parameter from Hugging Face tensors.

Each function gives the whole (not tensor-parallel, not padded) value of a global Megatron
parameter, as :func:`slime.trainer.hf_to_megatron.common.family_tensor` says.
"""

from __future__ import annotations

from typing import Any

import torch

from slime.trainer.hf_to_megatron.common import SafetensorReader, family_tensor
from slime.trainer.layer_rules import DENSE, MIMO, QWEN_MOE


def qwen_hf_tensor(name: str, reader: SafetensorReader, config: Any) -> torch.Tensor:
    """Dense: q, k and v fused group by group, gate above up."""
    return family_tensor(DENSE, name, reader, config)


def qwen_moe_hf_tensor(name: str, reader: SafetensorReader, config: Any) -> torch.Tensor:
    """Experts beside, or in place of, the dense layers."""
    return family_tensor(QWEN_MOE, name, reader, config)


def mimo_hf_tensor(name: str, reader: SafetensorReader, config: Any) -> torch.Tensor:
    """Dense, with multi-token-prediction layers."""
    return family_tensor(MIMO, name, reader, config)
