"""How the parameters of a Megatron layer correspond to those of a Hugging Face layer, once for both
ways.

Megatron's local layers and TransformerEngine's name some parameters differently; ``canonical``
gives the local name, so a rule is written once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Merge = Literal["copy", "qkv", "gate_up"]

_TE_SUFFIXES = {
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight",
}
_LAYER = re.compile(r"^decoder\.layers\.(\d+)\.(.+)$")
_WRAPPER = re.compile(r"^(module\.)+")


@dataclass(frozen=True)
class Rule:
    """One Megatron parameter is made of these Hugging Face tensors, merged in this way."""

    sources: tuple[str, ...]
    merge: Merge = "copy"


EMBEDDING, OUTPUT_LAYER = "embedding.word_embeddings.weight", "output_layer.weight"

TOP_LEVEL: Mapping[str, Rule] = {
    EMBEDDING: Rule(("model.embed_tokens.weight",)),
    "decoder.final_layernorm.weight": Rule(("model.norm.weight",)),
    OUTPUT_LAYER: Rule(("lm_head.weight",)),
}

# Llama, Qwen2 and Qwen3 (dense): what one layer can have; a family has a subset.
DENSE_LAYER: Mapping[str, Rule] = {
    "input_layernorm.weight": Rule(("input_layernorm.weight",)),
    "pre_mlp_layernorm.weight": Rule(("post_attention_layernorm.weight",)),
    "self_attention.linear_qkv.weight": Rule(
        ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"), "qkv"
    ),
    "self_attention.linear_qkv.bias": Rule(
        ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"), "qkv"
    ),
    "self_attention.q_layernorm.weight": Rule(("self_attn.q_norm.weight",)),
    "self_attention.k_layernorm.weight": Rule(("self_attn.k_norm.weight",)),
    "self_attention.linear_proj.weight": Rule(("self_attn.o_proj.weight",)),
    "mlp.linear_fc1.weight": Rule(("mlp.gate_proj.weight", "mlp.up_proj.weight"), "gate_up"),
    "mlp.linear_fc2.weight": Rule(("mlp.down_proj.weight",)),
}


def canonical(name: str) -> str:
    """The name without DDP/half-precision wrappers and with the local layers' suffixes."""
    name = _WRAPPER.sub("", name)
    for suffix, local in _TE_SUFFIXES.items():
        name = name.removesuffix(suffix) + local if name.endswith(suffix) else name
    return name


def find_rule(name: str, layer_rules: Mapping[str, Rule]) -> Rule:
    """The rule of a global Megatron parameter name, with full Hugging Face names.

    Raises:
        KeyError: the family has no such parameter.
    """
    name = canonical(name)
    if name in TOP_LEVEL:
        return TOP_LEVEL[name]
    match = _LAYER.match(name)
    if match is None or match[2] not in layer_rules:
        raise KeyError(f"no Hugging Face counterpart is known for the Megatron parameter {name!r}")
    rule = layer_rules[match[2]]
    prefix = f"model.layers.{match[1]}."
    return Rule(tuple(prefix + source for source in rule.sources), rule.merge)


def with_layer_offset(name: str, offset: int) -> str:
    """A chunk-local parameter name -> its name in the whole model (layers over all stages)."""
    name = _WRAPPER.sub("", name)
    match = _LAYER.match(name)
    return name if match is None else f"decoder.layers.{int(match[1]) + offset}.{match[2]}"
