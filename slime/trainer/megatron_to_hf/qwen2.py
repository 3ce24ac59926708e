"""Qwen2, Qwen3 and Llama (dense): Hugging Face tensors from a whole Megatron parameter."""

from __future__ import annotations

from argparse import Namespace

import torch

from slime.trainer.param_names import DENSE_LAYER, find_rule
from slime.trainer.tensor_layout import split_qkv


def convert_qwen2_to_hf(
    args: Namespace, name: str, param: torch.Tensor
) -> list[tuple[str, torch.Tensor]]:
    """The Hugging Face tensors that a global, whole Megatron parameter holds, with their names.

    Raises:
        KeyError: unknown parameter.
    """
    rule = find_rule(name, DENSE_LAYER)
    parts: tuple[torch.Tensor, ...] = (param,)
    if rule.merge == "qkv":
        parts = split_qkv(param, args.num_query_groups, args.num_attention_heads)
    elif rule.merge == "gate_up":
        parts = param.chunk(2)
    return list(zip(rule.sources, parts, strict=True))
