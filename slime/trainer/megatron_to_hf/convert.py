"""Whole Megatron parameters -> Hugging Face tensors."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch

from slime.trainer.megatron_to_hf.common import NamedTensors
from slime.trainer.megatron_to_hf.deepseekv3 import convert_deepseekv3_to_hf
from slime.trainer.megatron_to_hf.glm4 import convert_glm4_to_hf
from slime.trainer.megatron_to_hf.glm4moe import convert_glm4moe_to_hf
from slime.trainer.megatron_to_hf.mimo import convert_mimo_to_hf
from slime.trainer.megatron_to_hf.qwen2 import convert_qwen2_to_hf
from slime.trainer.megatron_to_hf.qwen3moe import convert_qwen3moe_to_hf
from slime.trainer.param_names import EMBEDDING, OUTPUT_LAYER, canonical
from slime.trainer.quantize import quantize_weights

Converter = Callable[[Namespace, str, torch.Tensor], NamedTensors]

CONVERTERS: dict[str, Converter] = {
    "deepseek_v3": convert_deepseekv3_to_hf,
    "glm4": convert_glm4_to_hf,
    "glm4_moe": convert_glm4moe_to_hf,
    "llama": convert_qwen2_to_hf,
    "mimo": convert_mimo_to_hf,
    "qwen2": convert_qwen2_to_hf,
    "qwen3": convert_qwen2_to_hf,
    "qwen3_moe": convert_qwen3moe_to_hf,
}


def convert_to_hf(
    args: Namespace,
    model_name: str,
    name: str,
    param: torch.Tensor,
    quantization_config: dict[str, Any] | None = None,
    transform_ue8m0: bool = True,
) -> NamedTensors:
    """Hugging Face (name, tensor) pairs of one whole Megatron parameter, vocabulary padding
    removed.

    Args:
        model_name: family, a key of ``CONVERTERS``.
        name: global Megatron name.
        quantization_config: of a config.json; None for weights as they are.
        transform_ue8m0: scales are powers of two where that config asks for it.

    Raises:
        KeyError: unknown family or parameter. ValueError: unknown kind of quantisation.
    """
    param = remove_padding(name, param, args.hf_architecture["vocab_size"])
    tensors = CONVERTERS[model_name](args, name, param)
    if quantization_config is None:
        return tensors
    return quantize_weights(tensors, quantization_config, transform_ue8m0)


def remove_padding(name: str, param: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Drop the rows that make a vocabulary divisible; other parameters pass."""
    return param[:vocab_size] if canonical(name) in (EMBEDDING, OUTPUT_LAYER) else param
