"""Hugging Face checkpoint -> this rank's parameters, without an intermediate checkpoint."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

from slime.trainer.hf_to_megatron.common import CheckpointError, SafetensorReader
from slime.trainer.hf_to_megatron.qwen import qwen_hf_tensor
from slime.trainer.model_provider import unwrap
from slime.trainer.param_names import EMBEDDING, OUTPUT_LAYER, canonical, with_layer_offset
from slime.trainer.tensor_layout import pad_rows, shard

HFTensor = Callable[[str, SafetensorReader, Any], torch.Tensor]

FAMILIES: dict[str, HFTensor] = {
    "llama": qwen_hf_tensor,
    "qwen2": qwen_hf_tensor,
    "qwen3": qwen_hf_tensor,
}


def family_of(args: Namespace) -> str:
    """The model family: ``--model-name`` or the ``model_type`` of config.json."""
    name = args.model_name or args.hf_architecture["model_type"]
    if name not in FAMILIES:
        raise CheckpointError(f"model family {name!r} is not supported; known: {sorted(FAMILIES)}")
    return name


@torch.no_grad()
def load_hf_weights(
    args: Namespace, model: list[DistributedDataParallel], path: str | Path
) -> None:
    """Fill every parameter of this rank's chunks from a Hugging Face checkpoint.

    Raises:
        CheckpointError: missing tensors or wrong shapes, all of them in one message.
    """
    reader = SafetensorReader(path)
    hf_tensor = FAMILIES[family_of(args)]
    problems = []
    for name, param in named_global_parameters(model):
        try:
            full = hf_tensor(name, reader, args.hf_architecture)
        except KeyError as error:
            problems.append(str(error.args[0]))
            continue
        if canonical(name) in (EMBEDDING, OUTPUT_LAYER):
            full = pad_rows(full, args.vocab_size)
        value = local_share(name, full, param)
        if value.shape != param.shape:
            problems.append(
                f"{name}: {list(value.shape)} in the checkpoint, {list(param.shape)} in the model"
            )
            continue
        param.copy_(value)
    if problems:
        raise CheckpointError(f"{path} does not fit the model:\n  " + "\n  ".join(problems))


def named_global_parameters(
    model: list[DistributedDataParallel],
) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """(name in the whole model, parameter) of every chunk of this pipeline rank."""
    for chunk in model:
        vp_stage = getattr(unwrap(chunk), "vp_stage", None)
        offset = get_transformer_layer_offset(chunk.config, vp_stage)
        for name, param in chunk.named_parameters():
            yield with_layer_offset(name, offset), param


def local_share(name: str, full: torch.Tensor, param: Any) -> torch.Tensor:
    """What this tensor-parallel rank holds of a full parameter."""
    if not getattr(param, "tensor_model_parallel", False):
        return full
    return shard(
        full,
        param.partition_dim,
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_tensor_model_parallel_world_size(),
        gated=is_gated(name),
    )


def is_gated(name: str) -> bool:
    """Whether the parameter is gate and up in one matrix."""
    return ".linear_fc1.weight" in name or name.endswith(".linear_fc1.bias")
