"""Hugging Face checkpoint -> this rank's parameters, without an intermediate checkpoint."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

from slime.trainer.hf_to_megatron.common import CheckpointError, SafetensorReader, ShareReader
from slime.trainer.hf_to_megatron.deepseek import deepseek_hf_tensor
from slime.trainer.hf_to_megatron.glm import glm4_hf_tensor, glm4_moe_hf_tensor
from slime.trainer.hf_to_megatron.qwen import mimo_hf_tensor, qwen_hf_tensor, qwen_moe_hf_tensor
from slime.trainer.layer_rules import LM_HEAD
from slime.trainer.model_provider import unwrap
from slime.trainer.param_names import (
    EMBEDDING,
    OUTPUT_LAYER,
    canonical,
    is_expert,
    is_gated,
    with_offsets,
)
from slime.trainer.progress import Progress

HFTensor = Callable[[str, SafetensorReader, Any], torch.Tensor]

FAMILIES: dict[str, HFTensor] = {
    "deepseek_v3": deepseek_hf_tensor,
    "glm4": glm4_hf_tensor,
    "glm4_moe": glm4_moe_hf_tensor,
    "llama": qwen_hf_tensor,
    "mimo": mimo_hf_tensor,
    "qwen2": qwen_hf_tensor,
    "qwen3": qwen_hf_tensor,
    "qwen3_moe": qwen_moe_hf_tensor,
}
_BUFFERS = re.compile(r"rotary_emb\.inv_freq$")
PREDICTION_LAYER = re.compile(r"^model\.(mtp_layers\.\d+|layers\.(\d+))\.")


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
    """Fill every parameter of this rank's chunks from a Hugging Face checkpoint; collective.

    Of each tensor only the part that this rank holds is read. Rank 0 shows its progress.

    Raises:
        CheckpointError: missing or left-over tensors or wrong shapes, of all ranks in one message.
    """
    reader = SafetensorReader(path)
    hf_tensor = FAMILIES[family_of(args)]
    problems = []
    for name, param in _with_progress(list(named_global_parameters(model))):
        if getattr(param, "is_value_head", False):  # starts from its seed
            reader.used.add(LM_HEAD)  # a critic has no use for it
            continue
        try:
            problem = _fill(args, hf_tensor, reader, name, param)
        except CheckpointError as error:  # a whole file is wrong
            problem = str(error)
        except (KeyError, ValueError, RuntimeError) as error:
            problem = f"{name}: {error.args[0]}"
        if problem:
            problems.append(problem)
    _check_all_ranks(args, reader, problems)


def _with_progress(params: list[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
    if dist.get_rank() != 0:
        return params
    share = " (rank 0's share)" if dist.get_world_size() > 1 else ""
    total = sum(param.nbytes for _, param in params)
    return Progress(f"Load Hugging Face weights{share}", total).over(params)


def _fill(
    args: Namespace, hf_tensor: HFTensor, reader: SafetensorReader, name: str, param: Any
) -> str:
    """Read a parameter's value into it. Returns what is wrong, or nothing."""
    dim = partition_dim(name, param)
    if dim is not None:
        group = tensor_group(name)
        is_vocabulary = canonical(name) in (EMBEDDING, OUTPUT_LAYER)
        sizes = (args.hf_architecture["vocab_size"], args.vocab_size) if is_vocabulary else None
        reader = ShareReader(reader, dim, group.rank(), group.size(), sizes)
    value = hf_tensor(name, reader, args.hf_architecture)
    if value.shape != param.shape:
        return f"{name}: {list(value.shape)} in the checkpoint, {list(param.shape)} in the model"
    if not value.is_floating_point():
        return f"{name}: {value.dtype} in the checkpoint"
    param.copy_(value)
    return ""


def _check_all_ranks(args: Namespace, reader: SafetensorReader, problems: list[str]) -> None:
    """Agree on what is wrong with the checkpoint, over all ranks."""
    reports: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(reports, (problems, sorted(reader.used)))
    found = sorted({problem for listed, _ in reports for problem in listed})
    used = {name for _, names in reports for name in names}
    left = sorted(n for n in reader.names() - used if not may_be_left(args, n))
    found += [f"{name}: in the checkpoint, not in the model" for name in left]
    if found:
        raise CheckpointError(f"{reader.path} does not fit the model:\n  " + "\n  ".join(found))


def may_be_left(args: Namespace, name: str) -> bool:
    """Tensors a model can do without: derived ones, and layers that predict further tokens."""
    if name == LM_HEAD:
        return not args.untie_embeddings_and_output_weights
    layer = PREDICTION_LAYER.match(name)
    ahead = args.hf_architecture.get("num_nextn_predict_layers") or 0
    predicts = layer is not None and (
        layer[2] is None or 0 <= int(layer[2]) - args.num_layers < ahead
    )
    return predicts or _BUFFERS.search(name) is not None


def named_global_parameters(
    model: list[DistributedDataParallel],
) -> Iterator[tuple[str, torch.Tensor]]:
    """(name in the whole model, parameter) of every chunk of this pipeline rank.

    A router's bias is among them, though it is a buffer: no gradient moves it.
    """
    for chunk in model:
        vp_stage = getattr(unwrap(chunk), "vp_stage", None)
        layers = get_transformer_layer_offset(chunk.config, vp_stage)
        ep_size = parallel_state.get_expert_model_parallel_world_size()
        experts = (chunk.config.num_moe_experts or 0) // ep_size
        offset = experts * parallel_state.get_expert_model_parallel_rank()
        for name, param in chunk.named_parameters():
            yield with_offsets(name, layers, offset), param
        for name, buffer in chunk.named_buffers():
            if name.endswith(".router.expert_bias"):
                yield with_offsets(name, layers, offset), buffer


def tensor_group(name: str) -> dist.ProcessGroup:
    """The ranks over which a parameter is divided by tensor parallelism."""
    if is_expert(name):
        return parallel_state.get_expert_tensor_parallel_group()
    return parallel_state.get_tensor_model_parallel_group()


def partition_dim(name: str, param: Any) -> int | None:
    """The dimension along which the parameter is divided over these ranks; None if it is not."""
    if is_expert(name):  # TransformerEngine's grouped experts are not marked
        return 0 if is_gated(name) else 1
    return param.partition_dim if getattr(param, "tensor_model_parallel", False) else None
