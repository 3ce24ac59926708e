"""Build the model chunks of this rank: Megatron's GPT, or the user's own."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig

from slime.hooks.loading import load_function
from slime.trainer.model_config import has_transformer_engine, transformer_config
from slime.trainer.packed_attention import PackedCoreAttention

ModelProvider = Callable[..., MegatronModule]


def get_model_provider_func(args: Namespace, role: str = "actor") -> ModelProvider:
    """The function (pre_process, post_process, vp_stage=None) -> model of one pipeline stage.

    ``--custom-model-provider-path`` names a function with the same parameters, which then is used.
    """
    if args.custom_model_provider_path:
        return load_function(args.custom_model_provider_path)
    config = transformer_config(args)

    def provide(
        pre_process: bool = True, post_process: bool = True, vp_stage: int | None = None
    ) -> GPTModel:
        return GPTModel(
            config=config,
            transformer_layer_spec=layer_spec(args, config),
            vocab_size=args.vocab_size,
            max_sequence_length=args.max_position_embeddings,
            pre_process=pre_process,
            post_process=post_process,
            parallel_output=True,
            share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
            position_embedding_type=args.position_embedding_type,
            rotary_percent=args.rotary_percent,
            rotary_base=args.rotary_base,
            rope_scaling=args.use_rope_scaling,
            rope_scaling_factor=args.rope_scaling_factor,
            seq_len_interpolation_factor=args.rotary_seq_len_interpolation_factor,
            vp_stage=vp_stage,
        )

    return provide


def layer_spec(args: Namespace, config: TransformerConfig) -> ModuleSpec:
    """TransformerEngine's layer where it is installed, else Megatron's own with SDPA attention."""
    if has_transformer_engine():
        return get_gpt_layer_with_transformer_engine_spec(
            num_experts=config.num_moe_experts,
            moe_grouped_gemm=config.moe_grouped_gemm,
            qk_layernorm=config.qk_layernorm,
        )
    spec = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts,
        moe_grouped_gemm=False,
        qk_layernorm=config.qk_layernorm,
        normalization=args.normalization,
    )
    spec.submodules.self_attention.submodules.core_attention = PackedCoreAttention
    return spec


def build_model_chunks(args: Namespace, role: str = "actor") -> list[MegatronModule]:
    """The chunks of this pipeline rank, one per virtual stage, frozen parameters marked."""
    provide = get_model_provider_func(args, role)
    stages = parallel_state.get_virtual_pipeline_model_parallel_world_size()
    chunks = []
    for stage in [None] if stages is None else range(stages):
        where = {"ignore_virtual": False, "vp_stage": stage}
        model = provide(
            pre_process=parallel_state.is_pipeline_first_stage(**where),
            post_process=parallel_state.is_pipeline_last_stage(**where),
            vp_stage=stage,
        )
        _freeze(args, model)
        chunks.append(model if args.device == "cpu" else model.cuda())
    return chunks


def _freeze(args: Namespace, model: MegatronModule) -> None:
    """``--only-train-params-name-list``, ``--freeze-params-name-list``: regular expressions."""
    only, frozen = args.only_train_params_name_list, args.freeze_params_name_list
    for name, param in model.named_parameters():
        if only and not any(re.search(pattern, name) for pattern in only):
            param.requires_grad_(False)
        if frozen and any(re.search(pattern, name) for pattern in frozen):
            param.requires_grad_(False)


def unwrap(chunk: Any) -> Any:
    """The model inside data-parallel and half-precision wrappers."""
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk
