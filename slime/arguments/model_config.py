"""The shape of a model: from a Hugging Face `config.json` to Megatron's argument names."""

import json
from pathlib import Path
from typing import Any

_BIAS_IN_QKV = ("qwen2", "qwen2_moe", "mimo")  # always have it; their configs do not say so
_NORM_OF_QUERY_AND_KEY = ("qwen3", "qwen3_moe", "qwen3_next")
# Their code routes like this; their configs need not say so.
_SIGMOID_ROUTER = ("deepseek_v3", "glm4_moe")
_UNNORMALISED_ROUTER = ("qwen2_moe", "qwen3_moe")  # unless the config says otherwise
_SANDWICH_NORMS = ("glm4",)
_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)


def read_model_config(directory: Path) -> dict[str, Any]:
    """The parsed `config.json`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON, or a size is no positive integer.
    """
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError("config.json holds no mapping")
    text = config.get("text_config") or config
    for name in _SIZES:
        value = text.get(name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} is {value!r}, a positive integer is needed")
    return config


def megatron_shape(config: dict[str, Any]) -> dict[str, Any]:
    """Megatron's arguments for this model; what the config does not tell is left out."""
    text = config.get("text_config") or config  # vision-language models nest the language model
    shape = _dense_shape(text) | _position_shape(text) | _moe_shape(text) | _mla_shape(text)
    return {name: value for name, value in shape.items() if value is not None}


def _dense_shape(config: dict[str, Any]) -> dict[str, Any]:
    kind = config.get("model_type", "")
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    groups = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or (hidden // heads if hidden and heads else None)
    return {
        "num_layers": config.get("num_hidden_layers"),
        "hidden_size": hidden,
        "ffn_hidden_size": config.get("intermediate_size"),
        "num_attention_heads": heads,
        "num_query_groups": groups,
        "group_query_attention": groups != heads,
        "kv_channels": head_dim,
        "vocab_size": config.get("vocab_size"),
        "normalization": "RMSNorm" if "rms_norm_eps" in config else "LayerNorm",
        "norm_epsilon": config.get("rms_norm_eps", config.get("layer_norm_eps")),
        "qk_layernorm": bool(config.get("use_qk_norm", kind in _NORM_OF_QUERY_AND_KEY)),
        "add_qkv_bias": kind in _BIAS_IN_QKV or bool(config.get("attention_bias", False)),
        "add_bias_linear": bool(config.get("mlp_bias", False)),
        "swiglu": config.get("hidden_act", "silu") == "silu",
        "post_self_attn_layernorm": kind in _SANDWICH_NORMS or None,
        "post_mlp_layernorm": kind in _SANDWICH_NORMS or None,
        # Absent means untied: the configs of all these families leave the line out where it is
        # false.
        "untie_embeddings_and_output_weights": not config.get("tie_word_embeddings", False),
    }


def rope_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The rotary embedding's own settings, by their newer or their older name; maybe none."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def rope_kind(config: dict[str, Any]) -> str:
    """How the rotary embedding is scaled: `default` for not at all, `llama3`, `yarn`, ..."""
    rope = rope_settings(config)
    return str(rope.get("rope_type") or rope.get("type") or "default")


def _position_shape(config: dict[str, Any]) -> dict[str, Any]:
    rope = rope_settings(config)
    base = config.get("rope_theta", rope.get("rope_theta"))
    percent = config.get("partial_rotary_factor", rope.get("partial_rotary_factor"))
    llama3 = rope_kind(config) == "llama3"
    return {
        "position_embedding_type": "rope",
        "max_position_embeddings": config.get("max_position_embeddings"),
        "rotary_base": None if base is None else float(base),
        "rotary_percent": None if percent is None else float(percent),
        "rotary_interleaved": config.get("model_type") == "glm4" or None,
        "use_rope_scaling": True if llama3 else None,
        "rope_scaling_factor": float(rope["factor"]) if llama3 and "factor" in rope else None,
    }


def _moe_shape(config: dict[str, Any]) -> dict[str, Any]:
    experts = next(
        (
            config[key]
            for key in ("num_experts", "num_local_experts", "n_routed_experts")
            if config.get(key)
        ),
        None,
    )
    if experts is None:
        return {}
    width = config.get("moe_intermediate_size") or config.get("intermediate_size")
    shared = config.get("shared_expert_intermediate_size")
    if shared is None and config.get("n_shared_experts"):
        shared = config["n_shared_experts"] * width
    kind = config.get("model_type")
    biased = kind in _SIGMOID_ROUTER
    sigmoid = biased or config.get("scoring_func") == "sigmoid"
    normalised = config.get("norm_topk_prob", kind not in _UNNORMALISED_ROUTER)
    return {
        "num_experts": experts,
        "moe_router_topk": config.get("num_experts_per_tok"),
        "moe_ffn_hidden_size": width,
        "moe_layer_freq": _moe_layer_freq(config),
        "moe_shared_expert_intermediate_size": shared,
        "moe_router_score_function": "sigmoid" if sigmoid else "softmax",
        # Weights that are not normalised over the chosen experts are a softmax over all of them.
        "moe_router_pre_softmax": not normalised and not sigmoid,
        "moe_router_topk_scaling_factor": config.get("routed_scaling_factor"),
        "moe_router_num_groups": config.get("n_group"),
        "moe_router_group_topk": config.get("topk_group"),
        "moe_router_enable_expert_bias": biased or config.get("topk_method") == "noaux_tc" or None,
    }


def _moe_layer_freq(config: dict[str, Any]) -> int | list[int]:
    """Which layers have experts: 1 for all, else a 0/1 list."""
    layers = config.get("num_hidden_layers", 0)
    step = config.get("decoder_sparse_step", 1)
    dense = set(config.get("mlp_only_layers") or []) | set(
        range(config.get("first_k_dense_replace", 0))
    )
    pattern = [int(i not in dense and (i + 1) % step == 0) for i in range(layers)]
    return 1 if all(pattern) else pattern


def _mla_shape(config: dict[str, Any]) -> dict[str, Any]:
    if not config.get("kv_lora_rank"):
        return {}
    yarn = rope_settings(config) if rope_kind(config) == "yarn" else {}
    return {
        "multi_latent_attention": True,
        "q_lora_rank": config.get("q_lora_rank"),
        "kv_lora_rank": config["kv_lora_rank"],
        "qk_head_dim": config.get("qk_nope_head_dim"),
        "qk_pos_emb_head_dim": config.get("qk_rope_head_dim"),
        "v_head_dim": config.get("v_head_dim"),
        "qk_layernorm": True,  # of the compressed queries and keys
        "rope_type": "yarn" if yarn else "rope",
        "rotary_scaling_factor": yarn.get("factor"),
        "mscale": yarn.get("mscale"),
        "mscale_all_dim": yarn.get("mscale_all_dim"),
    }
