"""config.json of known models -> Megatron's names. The right values are those of the models' own
recipes.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from slime.arguments.model_config import megatron_shape, read_model_config
from slime.arguments.resolve_model import padded_vocab_size

QWEN3_0_6B = {
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
QWEN2_5_7B = {
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "vocab_size": 152064,
}
LLAMA_3_2_1B = {
    "model_type": "llama",
    "attention_bias": False,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "low_freq_factor": 1.0, "rope_type": "llama3"},
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "vocab_size": 151936,
}
MOONLIGHT = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 1,
    "hidden_size": 2048,
    "intermediate_size": 11264,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 1408,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": True,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-05,
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.446,
    "scoring_func": "sigmoid",
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
    "vocab_size": 163840,
}
GLM_4_9B = {
    "model_type": "glm4",
    "attention_bias": True,
    "head_dim": 128,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
}
GLM_4_5_AIR = {
    "model_type": "glm4_moe",
    "attention_bias": True,
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "moe_intermediate_size": 1408,
    "n_group": 1,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 46,
    "partial_rotary_factor": 0.5,
    "routed_scaling_factor": 1.0,
    "topk_group": 1,
    "use_qk_norm": False,
}
DEEPSEEK_ROPE = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            QWEN3_0_6B,
            {
                "num_layers": 28,
                "hidden_size": 1024,
                "ffn_hidden_size": 3072,
                "num_attention_heads": 16,
                "num_query_groups": 8,
                "group_query_attention": True,
                "kv_channels": 128,
                "qk_layernorm": True,
                "add_qkv_bias": False,
                "rotary_base": 1000000.0,
                "untie_embeddings_and_output_weights": False,
                "normalization": "RMSNorm",
                "norm_epsilon": 1e-06,
                "swiglu": True,
                "add_bias_linear": False,
            },
        ),
        (
            QWEN2_5_7B,
            {
                "kv_channels": 128,
                "qk_layernorm": False,
                "add_qkv_bias": True,
                "untie_embeddings_and_output_weights": True,
            },
        ),
        (
            LLAMA_3_2_1B,
            {
                "use_rope_scaling": True,
                "rope_scaling_factor": 32.0,
                "rotary_base": 500000.0,
                "qk_layernorm": False,
                "add_qkv_bias": False,
                "norm_epsilon": 1e-05,
            },
        ),
        (
            QWEN3_30B_A3B,
            {
                "num_experts": 128,
                "moe_router_topk": 8,
                "moe_ffn_hidden_size": 768,
                "moe_layer_freq": 1,
                "moe_router_pre_softmax": False,
                "moe_router_score_function": "softmax",
                "untie_embeddings_and_output_weights": True,
            },
        ),
        (
            MOONLIGHT,
            {
                "num_experts": 64,
                "moe_layer_freq": [0] + [1] * 26,
                "moe_shared_expert_intermediate_size": 2816,
                "moe_router_score_function": "sigmoid",
                "moe_router_topk_scaling_factor": 2.446,
                "moe_router_enable_expert_bias": True,
                "multi_latent_attention": True,
                "kv_lora_rank": 512,
                "qk_head_dim": 128,
                "qk_pos_emb_head_dim": 64,
                "v_head_dim": 128,
                "rope_type": "rope",
                "qk_layernorm": True,
            },
        ),
        (
            {**MOONLIGHT, "q_lora_rank": 1536, "rope_scaling": DEEPSEEK_ROPE},
            {
                "q_lora_rank": 1536,
                "rope_type": "yarn",
                "rotary_scaling_factor": 40,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        ),
        (
            GLM_4_9B,
            {
                "add_qkv_bias": True,
                "rotary_percent": 0.5,
                "rotary_interleaved": True,
                "post_self_attn_layernorm": True,
                "post_mlp_layernorm": True,
                "qk_layernorm": False,
            },
        ),
        (
            GLM_4_5_AIR,
            {
                "rotary_percent": 0.5,
                "rotary_interleaved": None,
                "post_mlp_layernorm": None,
                "moe_layer_freq": [0] + [1] * 45,
                "moe_shared_expert_intermediate_size": 1408,
                "moe_router_score_function": "sigmoid",
                "moe_router_enable_expert_bias": True,
                "moe_router_pre_softmax": False,
            },
        ),
    ],
    ids=[
        "qwen3",
        "qwen2.5",
        "llama3.2",
        "qwen3-moe",
        "moonlight",
        "deepseek-v3",
        "glm-4",
        "glm-4.5",
    ],
)
def test_known_models(config: dict[str, Any], expected: dict[str, Any]) -> None:
    shape = megatron_shape(config)
    assert {name: shape.get(name) for name in expected} == expected


def test_a_dense_model_has_no_experts_and_no_rank() -> None:
    shape = megatron_shape(QWEN3_0_6B)
    assert not [name for name in shape if "moe" in name or "expert" in name or "lora" in name]


def test_the_newer_form_of_the_rope_settings() -> None:
    config = {**QWEN3_0_6B, "rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}}
    del config["rope_theta"]
    assert megatron_shape(config)["rotary_base"] == 5e6


def test_routing_weights_are_not_normalised_where_the_config_does_not_say_so() -> None:
    config = {name: value for name, value in QWEN3_30B_A3B.items() if name != "norm_topk_prob"}
    assert megatron_shape(config)["moe_router_pre_softmax"] is True


def test_every_second_layer_has_experts() -> None:
    config = {**QWEN3_30B_A3B, "num_hidden_layers": 4, "decoder_sparse_step": 2}
    assert megatron_shape(config)["moe_layer_freq"] == [0, 1, 0, 1]
    config = {**QWEN3_30B_A3B, "num_hidden_layers": 4, "mlp_only_layers": [0, 3]}
    assert megatron_shape(config)["moe_layer_freq"] == [0, 1, 1, 0]


def test_the_language_model_inside_a_vision_model() -> None:
    config = {"model_type": "qwen3_vl", "text_config": QWEN3_0_6B}
    assert megatron_shape(config) == megatron_shape(QWEN3_0_6B)


@pytest.mark.parametrize(
    ("vocab", "divisible_by", "tensor", "padded"),
    [(100, 128, 1, 128), (151936, 128, 8, 152576), (100, 1, 1, 100), (100, 1, 3, 102)],
)
def test_padded_vocabulary(vocab: int, divisible_by: int, tensor: int, padded: int) -> None:
    assert padded_vocab_size(vocab, divisible_by, tensor) == padded


@pytest.mark.parametrize("size", [-2, 0, "128", 1.5, [4]])
def test_a_size_that_is_no_positive_integer_is_refused(size: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"hidden_size": size}}))
    with pytest.raises(ValueError, match="hidden_size is .* a positive integer is needed"):
        read_model_config(tmp_path)
