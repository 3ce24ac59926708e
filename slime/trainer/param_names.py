"""The names of Megatron's parameters: wrappers, both layer implementations, offsets of a rank.

Megatron's local layers and TransformerEngine's name some parameters differently; ``canonical``
gives the local name, so a rule about it is written once. A rank counts its layers and experts from
zero; ``with_offsets`` gives the name in the whole model.
"""

from __future__ import annotations

import re

EMBEDDING, OUTPUT_LAYER = "embedding.word_embeddings.weight", "output_layer.weight"

_WRAPPER = re.compile(r"^(module\.)+")
_LAYER = re.compile(r"^decoder\.layers\.(\d+)\.")
_LOCAL_EXPERT = re.compile(r"\.local_experts\.(\d+)\.")
_GROUPED_EXPERT = re.compile(r"\.mlp\.experts\.(linear_fc[12])\.(weight|bias)(\d+)$")
# TransformerEngine fuses a norm into the linear layer after it.
_FUSED_NORMS = {
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "self_attention.linear_q_up_proj.layer_norm_weight": "self_attention.q_layernorm.weight",
    "self_attention.linear_kv_up_proj.layer_norm_weight": "self_attention.kv_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight",
}


def canonical(name: str) -> str:
    """The name without DDP/half-precision wrappers and as the local layers spell it."""
    name = _WRAPPER.sub("", name)
    for suffix, local in _FUSED_NORMS.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix) + local
    return _GROUPED_EXPERT.sub(r".mlp.experts.local_experts.\3.\1.\2", name)


def with_offsets(name: str, layer_offset: int, expert_offset: int) -> str:
    """A rank's canonical parameter name -> its name in the whole model.

    Args:
        layer_offset: layers on the pipeline stages before this chunk.
        expert_offset: experts (of one layer) on the expert-parallel ranks before this one.
    """
    name = _LAYER.sub(lambda m: f"decoder.layers.{int(m[1]) + layer_offset}.", canonical(name))
    return _LOCAL_EXPERT.sub(lambda m: f".local_experts.{int(m[1]) + expert_offset}.", name)


def is_expert(name: str) -> bool:
    """Whether the parameter belongs to one routed expert (not to the shared ones)."""
    return ".mlp.experts." in name


def is_gated(name: str) -> bool:
    """Whether the parameter is gate and up in one matrix."""
    return ".linear_fc1." in name
