"""The Hugging Face tensors of a whole Megatron parameter, by the rule table of a family."""

from __future__ import annotations

from argparse import Namespace

import torch

from slime.trainer.layer_rules import Family, find_rule
from slime.trainer.tensor_layout import split_qkv

NamedTensors = list[tuple[str, torch.Tensor]]


def family_tensors(family: Family, args: Namespace, name: str, param: torch.Tensor) -> NamedTensors:
    """The Hugging Face tensors that a global, whole Megatron parameter holds, with their names.

    Raises:
        KeyError: unknown parameter.
    """
    rule = find_rule(family, name, args.num_layers)
    parts: tuple[torch.Tensor, ...] = (param,)
    if rule.merge == "qkv":
        parts = split_qkv(param, args.num_query_groups, args.num_attention_heads)
    elif rule.merge == "gate_up":
        parts = param.chunk(2)
    elif rule.merge == "swap":
        parts = (torch.cat(param.chunk(2, 1)[::-1], 1),)
    return list(zip(rule.sources, parts, strict=True))
