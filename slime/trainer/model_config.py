"""Resolved arguments -> Megatron's TransformerConfig."""

from __future__ import annotations

import dataclasses
import importlib.util
from argparse import Namespace
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.distributed import finalize_model_grads
from megatron.core.transformer.transformer_config import (
    MLATransformerConfig,
    TransformerConfig,
)

from slime.arguments.model_config import rope_settings
from slime.trainer.coalescing import bounded_coalescing

# Fused kernels of Apex and TransformerEngine; never there on a CPU.
_FUSIONS = (
    "apply_rope_fusion",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "gradient_accumulation_fusion",
    "masked_softmax_fusion",
    "persist_layer_norm",
)

# Megatron's command line and its configuration disagree on these names.
_RENAMED = {
    "norm_epsilon": "layernorm_epsilon",
    "num_experts": "num_moe_experts",
    "apply_layernorm_1p": "layernorm_zero_centered_gamma",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
}


def has_transformer_engine() -> bool:
    """Whether layers can be TransformerEngine's (never on a CPU: its import fails there)."""
    return torch.cuda.is_available() and importlib.util.find_spec("transformer_engine") is not None


def train_dtype(args: Namespace) -> torch.dtype:
    """The type of the parameters in forward and backward."""
    if args.bf16:
        return torch.bfloat16
    return torch.float16 if args.fp16 else torch.float32


def transformer_config(args: Namespace) -> TransformerConfig:
    """Arguments named like TransformerConfig fields go through; the rest is derived here."""
    config_class = MLATransformerConfig if args.multi_latent_attention else TransformerConfig
    names = {field.name for field in dataclasses.fields(config_class) if field.init}
    values: dict[str, Any] = {
        name: value for name, value in vars(args).items() if name in names and value is not None
    }
    for option, field_name in _RENAMED.items():
        if getattr(args, option) is not None:
            values[field_name] = getattr(args, option)
    if args.multi_latent_attention:
        values.update(_latent_attention(args))
    dtype = train_dtype(args)
    values.update(
        params_dtype=dtype,
        pipeline_dtype=dtype,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        use_cpu_initialization=args.device == "cpu",
        # A micro-batch's loss is already its share of the global batch's loss, so gradients are
        # summed over micro-batches and ranks and divided by nothing (see _finalize_gradients).
        calculate_per_token_loss=True,
        finalize_model_grads_func=_finalize_gradients,
        # Packed micro-batches differ in length.
        variable_seq_lengths=args.pipeline_model_parallel_size > 1,
        deallocate_pipeline_outputs=True,
    )
    if not has_transformer_engine():
        values.update(dict.fromkeys(_FUSIONS, False), moe_grouped_gemm=False)
        # Of these there is one that a CPU has: see cpu_compat.
        values["bias_activation_fusion"] = args.device == "cpu"
    if values.get("virtual_pipeline_model_parallel_size"):
        # With batched p2p the interleaved schedule silently gives wrong results on gloo.
        values.update(overlap_p2p_comm=True, batch_p2p_comm=False)
    return config_class(**values)


def _latent_attention(args: Namespace) -> dict[str, Any]:
    """What Megatron's command line has no option for, from config.json."""
    rope = rope_settings(args.hf_architecture)
    names = ("original_max_position_embeddings", "beta_fast", "beta_slow")
    yarn = {name: rope[name] for name in names if name in rope}
    return {**yarn, "q_lora_rank": args.q_lora_rank}  # None is a value: queries uncompressed


def _finalize_gradients(
    model: list[torch.nn.Module], num_tokens: Any = None, **kwargs: Any
) -> None:
    """Megatron's finalisation without its division by the number of tokens, in bounded memory."""
    with bounded_coalescing():
        finalize_model_grads(model, None, **kwargs)
