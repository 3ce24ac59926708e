"""A training step as files: arguments, weights and data of every rank, to run it again.

``rank<r>.json`` has the arguments, the rank's place and the plain part of its data;
``rank<r>.safetensors`` its weights and per-token data.
"""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from safetensors.torch import load_file, save_file

from slime.trainer.buckets import own_copy
from slime.trainer.rollout_tensors import RolloutBatch, batches_of_step
from slime.trainer.sample_lists import join_lists, split_lists


def samples_of(data: RolloutBatch, step: int) -> list[Any]:
    """Indices of this rank's samples of a step, as the rollout side numbers them."""
    numbers = data.get("sample_indices", range(len(data["tokens"])))
    return [numbers[place] for batch in batches_of_step(data, step) for place in batch]


def write(
    folder: Path,
    args: Namespace,
    role: str,
    model: list[DistributedDataParallel],
    data: RolloutBatch,
    step: int,
) -> None:
    """Write this rank's files; every rank calls it."""
    folder.mkdir(parents=True, exist_ok=True)
    lists, plain = split_lists(data)
    tensors = {f"weight/{name}": own_copy(param) for name, param in _named(model)}
    tensors |= {f"data/{name}": tensor for name, tensor in lists.items()}
    content = {
        "role": role,
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "step": step,
        "samples": samples_of(data, step),
        "data": _jsonable(plain),
        "args": {key: _jsonable(value) for key, value in vars(args).items()},
    }
    path = folder / f"rank{dist.get_rank()}"
    save_file(tensors, path.with_suffix(".safetensors"))
    path.with_suffix(".json").write_text(json.dumps(content, indent=1))


def read(folder: Path, rank: int) -> tuple[dict[str, Any], dict[str, torch.Tensor], RolloutBatch]:
    """(what the JSON file has, weights by name, data) of one rank."""
    content = json.loads((folder / f"rank{rank}.json").read_text())
    kinds: dict[str, dict[str, torch.Tensor]] = {"weight": {}, "data": {}}
    for name, tensor in load_file(folder / f"rank{rank}.safetensors").items():
        kind, _, rest = name.partition("/")
        kinds[kind][rest] = tensor
    data = content.pop("data") | join_lists(kinds["data"].items())
    return content, kinds["weight"], data


def put_weights(model: list[DistributedDataParallel], weights: dict[str, torch.Tensor]) -> None:
    """Fill the model with the weights of a dump."""
    with torch.no_grad():
        for name, param in _named(model):
            param.copy_(weights[name])


def _named(model: list[DistributedDataParallel]) -> list[tuple[str, torch.nn.Parameter]]:
    return [
        (f"{index}/{name}", param)
        for index, chunk in enumerate(model)
        for name, param in chunk.named_parameters()
    ]


def _jsonable(value: Any) -> Any:
    """The value as JSON has it, or None for objects it cannot hold (no step needs those)."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else None
