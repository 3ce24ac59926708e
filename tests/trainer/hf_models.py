"""Tiny random Hugging Face checkpoints of every model family."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

VOCAB = 101  # odd: tensor parallelism has to pad it
HIDDEN = 64
# The checkpoint's names of a prediction layer's own parameters, by family; {} stands before them.
OWN = {
    "mimo": ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
    "glm4_moe": ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
    "deepseek_v3": ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
}

_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
_ROUTED = {**_EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
_ROUTED |= {"n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5}
_MLA = {"kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12}
_MLA |= {"num_key_value_heads": 4, "head_dim": 8}
# What published models have in config.json and SGLang reads; transformers does not know it.
_SIGMOID = {"moe_layer_freq": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}
_LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0}
_LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "mscale": 1.0}
_YARN |= {"mscale_all_dim": 0.5, "beta_fast": 32, "beta_slow": 1}
_YARN |= {"original_max_position_embeddings": 4096}
_HALF = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
# Name in the tests -> model_type and what its config has beside the common sizes.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen3_deep": ("qwen3", {"head_dim": 32, "num_hidden_layers": 4}),
    "llama": ("llama", {}),
    "llama3": ("llama", {"rope_parameters": _LLAMA3}),
    "qwen3_moe": ("qwen3_moe", {"head_dim": 32, "num_experts": 4, **_EXPERTS}),
    "qwen3_moe_mixed": (
        "qwen3_moe",
        {"head_dim": 32, "num_experts": 4, **_EXPERTS, "mlp_only_layers": [0]}
        | {"norm_topk_prob": False},
    ),
    "glm4": ("glm4", {"head_dim": 16, "attention_bias": True, "rope_parameters": _HALF}),
    "glm4_moe": (
        "glm4_moe",
        {"head_dim": 16, "use_qk_norm": True, "attention_bias": True, **_ROUTED}
        | {"rope_parameters": _HALF},
    ),
    "deepseek_v3": ("deepseek_v3", {**_ROUTED, **_MLA, "q_lora_rank": 24}),
    "deepseek_v3_grouped": (
        "deepseek_v3",
        {**_ROUTED, **_MLA, "q_lora_rank": 24, "n_routed_experts": 8, "n_group": 4}
        | {"topk_group": 2, "num_experts_per_tok": 4, "rope_parameters": _YARN},
    ),
    "moonlight": ("deepseek_v3", {**_ROUTED, **_MLA, **_SIGMOID, "q_lora_rank": None}),
}


def write_hf_model(folder: Path, kind: str, tied: bool = True, seed: int = 0) -> Path:
    """A random 2-layer model of a kind, all weights far from their initial scale."""
    import transformers

    model_type, more = KINDS[kind]
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": tied,
        "rms_norm_eps": 1e-6,
        "pad_token_id": None,
    }
    config = transformers.AutoConfig.for_model(model_type, **{**sizes, **more})
    generator = torch.Generator().manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    values = dict(model.named_parameters())
    values |= {n: b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")}
    with torch.no_grad():
        for name, value in values.items():
            noise = torch.randn(value.shape, generator=generator) * 0.1
            value.copy_(noise + 1.0 if "norm" in name else noise)
    model.save_pretrained(folder)
    return folder


def with_prediction_layer(source: Path, folder: Path, family: str) -> Path:
    """The model with a copy of its last layer, and random weights around it, as layer to come."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    tensors = load_file(folder / "model.safetensors")
    prefix = "model.mtp_layers.0." if family == "mimo" else "model.layers.2."
    for name, value in list(tensors.items()):
        if name.startswith("model.layers.1."):
            tensors[name.replace("model.layers.1.", prefix)] = value.clone().flip(0)
    generator = torch.Generator().manual_seed(5)
    for name in OWN[family]:
        shape = (HIDDEN, 2 * HIDDEN) if name.endswith("proj") else (HIDDEN,)
        noise = torch.randn(shape, generator=generator) * 0.1
        tensors[f"{prefix}{name}.weight"] = noise + (len(shape) == 1)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_nextn_predict_layers": 1, "model_type": family}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
