"""Build the model chunks of this rank: Megatron's GPT, or the user's own."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_decoder_block_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.post_training.modelopt.layers import Linear
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

from slime.hooks.loading import load_function
from slime.trainer.model_config import has_transformer_engine, transformer_config
from slime.trainer.packed_attention import PackedCoreAttention
from slime.trainer.param_names import is_expert
from slime.trainer.prediction import PredictionModel
from slime.trainer.sandwich_layer import SandwichLayer
from slime.trainer.value_head import ValueHead

ModelProvider = Callable[..., MegatronModule]


def get_model_provider_func(args: Namespace, role: str = "actor") -> ModelProvider:
    """The function (pre_process, post_process, vp_stage=None) -> model of one pipeline stage.

    ``--custom-model-provider-path`` names a function with the same parameters, which then is used.
    The role "critic" has a value head in place of the output layer.
    """
    if args.custom_model_provider_path:
        provide = load_function(args.custom_model_provider_path)
    else:
        provide = _gpt_provider(args, role)
    return _with_value_head(args, provide) if role == "critic" else provide


def _with_value_head(args: Namespace, provide: ModelProvider) -> ModelProvider:
    def provide_critic(**where: Any) -> MegatronModule:
        model = provide(**where)
        if where.get("post_process", True):
            model.output_layer = ValueHead(model.config, args.seed)
        return model

    return provide_critic


def _gpt_provider(args: Namespace, role: str) -> ModelProvider:
    config = transformer_config(args)
    if role == "critic":
        config.mtp_num_layers = None
    model_class = PredictionModel if config.mtp_num_layers else GPTModel
    tied = not args.untie_embeddings_and_output_weights and role != "critic"

    def provide(
        pre_process: bool = True, post_process: bool = True, vp_stage: int | None = None
    ) -> GPTModel:
        block = block_spec(args, config, vp_stage)
        return model_class(
            config=config,
            transformer_layer_spec=block,
            mtp_block_spec=_mtp_spec(config, block, vp_stage),
            vocab_size=args.vocab_size,
            max_sequence_length=args.max_position_embeddings,
            pre_process=pre_process,
            post_process=post_process,
            parallel_output=True,
            share_embeddings_and_output_weights=tied,
            position_embedding_type=args.position_embedding_type,
            rotary_percent=args.rotary_percent,
            rotary_base=args.rotary_base,
            rope_scaling=args.use_rope_scaling,
            rope_scaling_factor=args.rope_scaling_factor,
            seq_len_interpolation_factor=args.rotary_seq_len_interpolation_factor,
            vp_stage=vp_stage,
        )

    return provide


def block_spec(
    args: Namespace, config: TransformerConfig, vp_stage: int | None
) -> TransformerBlockSubmodules:
    """The layers of a stage: TransformerEngine's where it is installed, else Megatron's own with
    SDPA attention.

    ``--spec MODULE FUNCTION`` names a function with the same parameters, which then is used.
    """
    if args.spec:
        return load_function(".".join(args.spec))(args, config, vp_stage)
    block = get_gpt_decoder_block_spec(
        config,
        use_transformer_engine=has_transformer_engine(),
        normalization=args.normalization,
        vp_stage=vp_stage,
    )
    for layer in block.layer_specs:
        if not has_transformer_engine():
            _use_local_attention(layer.submodules.self_attention.submodules, config)
        if args.post_self_attn_layernorm or args.post_mlp_layernorm:
            layer.module, layer.params = SandwichLayer, {"pre_norm": block.layer_norm}
    return block


def _use_local_attention(attention: Any, config: TransformerConfig) -> None:
    attention.core_attention = PackedCoreAttention
    if config.multi_latent_attention:
        # Split over tensor-parallel ranks, as Megatron's local layers have them, the gradient of
        # the rotated part of the keys lacks the other ranks' heads.
        attention.linear_q_down_proj = attention.linear_kv_down_proj = Linear


def _mtp_spec(
    config: TransformerConfig, block: TransformerBlockSubmodules, vp_stage: int | None
) -> Any:
    """Multi-token-prediction layers, made like the last layer of the stage that has them."""
    if not config.mtp_num_layers:
        return None
    return get_gpt_mtp_block_spec(config, block, has_transformer_engine(), vp_stage)


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
        _set_experts_apart(model)
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


def _set_experts_apart(model: MegatronModule) -> None:
    """Experts have gradient buffers and an optimizer of their own, as Megatron makes them with
    expert parallelism: one optimizer's checkpoint would not fit two.
    """
    for name, param in model.named_parameters():
        if is_expert(name):
            param.allreduce = False  # over all data-parallel ranks


def unwrap(chunk: Any) -> Any:
    """The model inside data-parallel and half-precision wrappers."""
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk
