"""The tensors that a Hugging Face checkpoint of a known family holds, by its config.json.

Names and shapes as each family's published checkpoints have them; layers beyond the decoder's,
which predict further tokens, are left out.
"""

import re
from collections.abc import Iterator
from typing import Any

from slime.arguments.model_config import megatron_shape

Shapes = dict[str, list[int]]
# model_type of config.json: what the trainer converts from and to.
FAMILIES = ("deepseek_v3", "glm4", "glm4_moe", "llama", "mimo", "qwen2", "qwen3", "qwen3_moe")
_SIZES = {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"}
_SIZES |= {"vocab_size"}
# What may be there beside: derived values, scales of FP8 blocks, layers that predict.
_BESIDE = re.compile(r"rotary_emb\.inv_freq$|_scale_inv$|^model\.mtp_layers\.")
_LAYER = re.compile(r"^model\.layers\.(\d+)\.")


def disagreements(found: Shapes, config: dict[str, Any]) -> Iterator[str]:
    """What of a checkpoint's tensors is not as config.json says; nothing where that is unknown."""
    known = config.get("model_type") in FAMILIES and config.keys() >= _SIZES
    if not found or not known:
        return
    expected, layers = expected_shapes(config), config["num_hidden_layers"]
    ahead = range(layers, layers + (config.get("num_nextn_predict_layers") or 0))
    missing = sorted(expected.keys() - found.keys())
    extra = sorted(n for n in found.keys() - expected.keys() if not _may_be_there(n, ahead))
    if config.get("tie_word_embeddings"):
        extra = [name for name in extra if name != "lm_head.weight"]
    wrong = [
        f"{name} is {found[name]}, by its config.json {shape}"
        for name, shape in expected.items()
        if found.get(name, shape) != shape
    ]
    if missing:
        yield f"its weights lack {_some(missing)}"
    if extra:
        yield f"its weights have what its config.json does not say: {_some(extra)}"
    if wrong:
        yield f"tensors of another shape: {_some(wrong)}"


def _some(names: list[str]) -> str:
    more = f", and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _may_be_there(name: str, ahead: range) -> bool:
    """`ahead`: the layers that predict further tokens."""
    layer = _LAYER.match(name)
    return _BESIDE.search(name) is not None or (layer is not None and int(layer[1]) in ahead)


def expected_shapes(config: dict[str, Any]) -> Shapes:
    """Name -> shape of every tensor of the decoder."""
    shape = megatron_shape(config)
    hidden, vocabulary = shape["hidden_size"], shape["vocab_size"]
    result: Shapes = {
        "model.embed_tokens.weight": [vocabulary, hidden],
        "model.norm.weight": [hidden],
    }
    if shape["untie_embeddings_and_output_weights"]:
        result["lm_head.weight"] = [vocabulary, hidden]
    experts = shape.get("moe_layer_freq", 0)
    for layer in range(shape["num_layers"]):
        is_moe = experts[layer] if isinstance(experts, list) else experts
        parts = _norms(shape) | _attention(shape) | (_experts(shape) if is_moe else _mlp(shape))
        result |= {f"model.layers.{layer}.{name}": value for name, value in parts.items()}
    return result


def _norms(shape: dict[str, Any]) -> Shapes:
    names = ["input_layernorm", "post_attention_layernorm"]
    if shape.get("post_mlp_layernorm"):
        names += ["post_self_attn_layernorm", "post_mlp_layernorm"]
    return {f"{name}.weight": [shape["hidden_size"]] for name in names}


def _attention(shape: dict[str, Any]) -> Shapes:
    if shape.get("multi_latent_attention"):
        return _latent_attention(shape)
    hidden, width = shape["hidden_size"], shape["kv_channels"]
    rows = {"q": shape["num_attention_heads"] * width}
    rows |= dict.fromkeys("kv", shape["num_query_groups"] * width)
    result: Shapes = {f"self_attn.{x}_proj.weight": [n, hidden] for x, n in rows.items()}
    result["self_attn.o_proj.weight"] = [hidden, rows["q"]]
    if shape["add_qkv_bias"]:
        result |= {f"self_attn.{x}_proj.bias": [n] for x, n in rows.items()}
    if shape["qk_layernorm"]:
        result |= {f"self_attn.{x}_norm.weight": [width] for x in "qk"}
    return result


def _latent_attention(shape: dict[str, Any]) -> Shapes:
    hidden, heads, rank = (
        shape[name] for name in ("hidden_size", "num_attention_heads", "kv_lora_rank")
    )
    plain, rotated, value = (
        shape[name] for name in ("qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
    )
    queries, query_rank = heads * (plain + rotated), shape.get("q_lora_rank")
    result: Shapes = {
        "kv_a_proj_with_mqa.weight": [rank + rotated, hidden],
        "kv_a_layernorm.weight": [rank],
        "kv_b_proj.weight": [heads * (plain + value), rank],
        "o_proj.weight": [hidden, heads * value],
    }
    if query_rank is None:
        result["q_proj.weight"] = [queries, hidden]
    else:
        result["q_a_proj.weight"] = [query_rank, hidden]
        result["q_a_layernorm.weight"] = [query_rank]
        result["q_b_proj.weight"] = [queries, query_rank]
    return {f"self_attn.{name}": value for name, value in result.items()}


def _mlp(shape: dict[str, Any]) -> Shapes:
    hidden, width = shape["hidden_size"], shape["ffn_hidden_size"]
    if shape.get("post_mlp_layernorm"):  # GLM-4 keeps gate and up in one
        return {
            "mlp.gate_up_proj.weight": [2 * width, hidden],
            "mlp.down_proj.weight": [hidden, width],
        }
    return _gated("mlp", hidden, width)


def _gated(prefix: str, hidden: int, width: int) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": [width, hidden],
        f"{prefix}.up_proj.weight": [width, hidden],
        f"{prefix}.down_proj.weight": [hidden, width],
    }


def _experts(shape: dict[str, Any]) -> Shapes:
    hidden, count, width = (
        shape[name] for name in ("hidden_size", "num_experts", "moe_ffn_hidden_size")
    )
    result: Shapes = {"mlp.gate.weight": [count, hidden]}
    for expert in range(count):
        result |= _gated(f"mlp.experts.{expert}", hidden, width)
    if shape.get("moe_router_enable_expert_bias"):
        result["mlp.gate.e_score_correction_bias"] = [count]
    if shared := shape.get("moe_shared_expert_intermediate_size"):
        result |= _gated("mlp.shared_experts", hidden, shared)
    return result
