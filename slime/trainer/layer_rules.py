"""Which Hugging Face tensors make up a Megatron parameter, once for both ways: a table per family.

Keys are what follows ``decoder.layers.N.`` in a canonical Megatron name, with the expert's index
left out; ``{expert}`` in a value stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slime.trainer.param_names import EMBEDDING, OUTPUT_LAYER, canonical

# copy: one tensor as it is. qkv: three, fused group by group. gate_up: two, one above the other.
# halves: one that holds gate and up already. swap: one whose left and right halves change places.
Merge = Literal["copy", "qkv", "gate_up", "halves", "swap"]

EMBED_TOKENS, LM_HEAD = "model.embed_tokens.weight", "lm_head.weight"
_LAYER = re.compile(r"^decoder\.layers\.(\d+)\.(.+)$")
_MTP = re.compile(r"^mtp\.layers\.(\d+)\.(transformer_layer\.)?(.+)$")
_EXPERT = re.compile(r"\.local_experts\.(\d+)")


@dataclass(frozen=True)
class Rule:
    """One Megatron parameter is made of these Hugging Face tensors, merged in this way."""

    sources: tuple[str, ...]
    merge: Merge = "copy"


Rules = Mapping[str, Rule]


def _one(name: str) -> Rule:
    return Rule((name,))


def _gate_up(prefix: str) -> Rule:
    return Rule((f"{prefix}.gate_proj.weight", f"{prefix}.up_proj.weight"), "gate_up")


def _qkv(kind: str) -> Rule:
    return Rule(tuple(f"self_attn.{x}_proj.{kind}" for x in "qkv"), "qkv")


TOP_LEVEL: Rules = {
    EMBEDDING: _one(EMBED_TOKENS),
    "decoder.final_layernorm.weight": _one("model.norm.weight"),
    OUTPUT_LAYER: _one(LM_HEAD),
}

_NORMS: Rules = {
    "input_layernorm.weight": _one("input_layernorm.weight"),
    "pre_mlp_layernorm.weight": _one("post_attention_layernorm.weight"),
}
_ATTENTION: Rules = {
    "self_attention.linear_qkv.weight": _qkv("weight"),
    "self_attention.linear_qkv.bias": _qkv("bias"),
    "self_attention.q_layernorm.weight": _one("self_attn.q_norm.weight"),
    "self_attention.k_layernorm.weight": _one("self_attn.k_norm.weight"),
    "self_attention.linear_proj.weight": _one("self_attn.o_proj.weight"),
}
_MLP: Rules = {
    "mlp.linear_fc1.weight": _gate_up("mlp"),
    "mlp.linear_fc2.weight": _one("mlp.down_proj.weight"),
}
_EXPERTS: Rules = {
    "mlp.router.weight": _one("mlp.gate.weight"),
    "mlp.experts.linear_fc1.weight": _gate_up("mlp.experts.{expert}"),
    "mlp.experts.linear_fc2.weight": _one("mlp.experts.{expert}.down_proj.weight"),
}
# DeepSeek-V3's mixture, which GLM-4.5 has taken over.
_BIASED_EXPERTS: Rules = {
    **_EXPERTS,
    "mlp.router.expert_bias": _one("mlp.gate.e_score_correction_bias"),
    "mlp.shared_experts.linear_fc1.weight": _gate_up("mlp.shared_experts"),
    "mlp.shared_experts.linear_fc2.weight": _one("mlp.shared_experts.down_proj.weight"),
}
_MLA: Rules = {
    "self_attention.linear_q_proj.weight": _one("self_attn.q_proj.weight"),
    "self_attention.linear_q_down_proj.weight": _one("self_attn.q_a_proj.weight"),
    "self_attention.q_layernorm.weight": _one("self_attn.q_a_layernorm.weight"),
    "self_attention.linear_q_up_proj.weight": _one("self_attn.q_b_proj.weight"),
    "self_attention.linear_kv_down_proj.weight": _one("self_attn.kv_a_proj_with_mqa.weight"),
    "self_attention.kv_layernorm.weight": _one("self_attn.kv_a_layernorm.weight"),
    "self_attention.linear_kv_up_proj.weight": _one("self_attn.kv_b_proj.weight"),
    "self_attention.linear_proj.weight": _one("self_attn.o_proj.weight"),
}


@dataclass(frozen=True)
class Family:
    """How the models of one kind name their tensors.

    Attributes:
        layer: what one layer can have; a model has a subset.
        mtp_prefix: of a multi-token-prediction layer; ``{index}`` counts these layers, ``{layer}``
            counts them after the decoder's.
        mtp: what such a layer has beside a decoder layer's parameters.
    """

    layer: Rules
    mtp_prefix: str = "model.layers.{layer}."
    mtp: Rules = field(default_factory=dict)


_DEEPSEEK_MTP: Rules = {
    "enorm.weight": _one("enorm.weight"),
    "hnorm.weight": _one("hnorm.weight"),
    "eh_proj.weight": _one("eh_proj.weight"),
    "final_layernorm.weight": _one("shared_head.norm.weight"),
}
# MiMo puts the hidden state left of the embedding, Megatron the embedding left.
_MIMO_MTP: Rules = {
    "enorm.weight": _one("token_layernorm.weight"),
    "hnorm.weight": _one("hidden_layernorm.weight"),
    "eh_proj.weight": Rule(("input_proj.weight",), "swap"),
    "final_layernorm.weight": _one("final_layernorm.weight"),
}

DENSE = Family({**_NORMS, **_ATTENTION, **_MLP})
QWEN_MOE = Family({**_NORMS, **_ATTENTION, **_MLP, **_EXPERTS})
MIMO = Family(DENSE.layer, "model.mtp_layers.{index}.", _MIMO_MTP)
GLM4 = Family(
    {
        **_NORMS,
        **_ATTENTION,
        **_MLP,
        "post_self_attn_layernorm.weight": _one("post_self_attn_layernorm.weight"),
        "post_mlp_layernorm.weight": _one("post_mlp_layernorm.weight"),
        "mlp.linear_fc1.weight": Rule(("mlp.gate_up_proj.weight",), "halves"),
    }
)
GLM4_MOE = Family({**_NORMS, **_ATTENTION, **_MLP, **_BIASED_EXPERTS}, mtp=_DEEPSEEK_MTP)
DEEPSEEK = Family({**_NORMS, **_MLA, **_MLP, **_BIASED_EXPERTS}, mtp=_DEEPSEEK_MTP)


def find_rule(family: Family, name: str, num_layers: int) -> Rule:
    """The rule of a global Megatron parameter name, with full Hugging Face names.

    Args:
        num_layers: of the decoder; prediction layers are counted after them.

    Raises:
        KeyError: the family has no such parameter.
    """
    name = canonical(name)
    if name in TOP_LEVEL:
        return TOP_LEVEL[name]
    expert = _EXPERT.search(name)
    short = _EXPERT.sub("", name)
    if match := _LAYER.match(short):
        prefix, rule = f"model.layers.{match[1]}.", family.layer.get(match[2])
    elif match := _MTP.match(short):
        index = int(match[1])
        prefix = family.mtp_prefix.format(index=index, layer=num_layers + index)
        rule = (family.layer if match[2] else family.mtp).get(match[3])
    else:
        rule = None
    if rule is None:
        raise KeyError(f"no Hugging Face counterpart is known for the Megatron parameter {name!r}")
    index = expert[1] if expert else ""
    return Rule(tuple(prefix + s.replace("{expert}", index) for s in rule.sources), rule.merge)
