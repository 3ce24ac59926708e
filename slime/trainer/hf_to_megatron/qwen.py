"""Qwen2, Qwen3 and Llama (dense): a Megatron parameter from Hugging Face tensors."""

from __future__ import annotations

from typing import Any

import torch

from slime.trainer.hf_to_megatron.common import SafetensorReader
from slime.trainer.param_names import DENSE_LAYER, find_rule
from slime.trainer.tensor_layout import merge_qkv


def qwen_hf_tensor(name: str, reader: SafetensorReader, config: Any) -> torch.Tensor:
    """The whole (not tensor-parallel, not padded) value of a global Megatron parameter.

    Args:
        name: such as ``decoder.layers.3.mlp.linear_fc1.weight``, local or TransformerEngine naming.
        config: the parsed config.json (a dict), for the number of key-value groups.

    Raises:
        KeyError: unknown parameter, or the checkpoint lacks a tensor.
    """
    rule = find_rule(name, DENSE_LAYER)
    if rule.sources == ("lm_head.weight",) and rule.sources[0] not in reader:
        # Tied embeddings: only a last pipeline stage away from the first has this copy.
        return reader.get_tensor("model.embed_tokens.weight")
    parts = [reader.get_tensor(source) for source in rule.sources]
    if rule.merge == "qkv":
        q, k, v = parts
        return merge_qkv(q, k, v, config["num_key_value_heads"])
    return parts[0] if len(parts) == 1 else torch.cat(parts)
