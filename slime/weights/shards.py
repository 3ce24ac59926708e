"""Which part of a checkpoint's tensor each rank of a tensor-parallel engine holds, and in which of
its parameters.

SGLang joins some tensors into one (`qkv_proj`, `gate_up_proj`, the experts of a layer), divides a
parameter among ranks by rows, by columns, or not at all, and fills vocabularies up with zeros; on a
CPU also the feed-forward layers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

# Parameter of the engine -> what it joins along dimension 0, in this order.
_JOINED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
_PART_OF = {
    part: (whole, index, len(parts))
    for whole, parts in _JOINED.items()
    for index, part in enumerate(parts)
}
_VOCABULARIES = ("embed_tokens", "lm_head")
_VOCABULARY_MULTIPLE = 64
_CPU_WIDTH_MULTIPLE = 32  # of each rank's part of a feed-forward layer
_ROWS, _COLUMNS = 0, 1
_DIVIDED = {"q_proj": _ROWS, "o_proj": _COLUMNS}
_FEED_FORWARD = {"gate_proj": _ROWS, "up_proj": _ROWS, "down_proj": _COLUMNS}
_BY_KV_HEADS = {"k_proj", "v_proj"}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


@dataclass(frozen=True)
class Place:
    """Part `index` of `count` of the engine's parameter `whole`."""

    whole: str
    index: int = 0
    count: int = 1


class Shards:
    """The rules for the model of a config.json in engines on a `device`, `cpu` or `cuda`."""

    def __init__(self, config: Mapping[str, Any], device: str) -> None:
        self._width_multiple = _CPU_WIDTH_MULTIPLE if device == "cpu" else 1
        self._experts = next((int(config[key]) for key in _EXPERTS if config.get(key)), 0)
        self._kv_heads = int(config.get("num_key_value_heads") or config["num_attention_heads"])

    def place(self, name: str) -> Place:
        """Where a tensor of the checkpoint goes."""
        if expert := _EXPERT.fullmatch(name):
            experts, number, kind = expert[1], int(expert[2]), expert[3]
            if kind == "down":
                return Place(f"{experts}.w2_weight", number, self._experts)
            index = 2 * number + (kind == "up")
            return Place(f"{experts}.w13_weight", index, 2 * self._experts)
        prefix, layer, rest = _split(name)
        if layer not in _PART_OF:
            return Place(name)
        whole, index, count = _PART_OF[layer]
        return Place(f"{prefix}.{whole}.{rest}", index, count)

    def part(self, name: str, tensor: torch.Tensor, rank: int, size: int) -> list[torch.Tensor]:
        """What rank `rank` of `size` holds of a tensor: pieces, one after the other in memory."""
        _, layer, _ = _split(name)
        if layer in _VOCABULARIES:
            return [_chunk(_filled(tensor, size), _ROWS, rank, size)]
        if layer == "gate_up_proj":  # joined in the checkpoint: each half is divided by itself
            gate, up = tensor.chunk(2)
            return [_chunk(half, _ROWS, rank, size, self._width_multiple) for half in (gate, up)]
        if layer in _FEED_FORWARD:
            return [_chunk(tensor, _FEED_FORWARD[layer], rank, size, self._width_multiple)]
        if layer in _BY_KV_HEADS:  # fewer heads than ranks: several ranks hold the same one
            parts = min(size, self._kv_heads)
            return [_chunk(tensor, _ROWS, rank * parts // size, parts)]
        if layer in _DIVIDED and tensor.dim() > _DIVIDED[layer]:
            return [_chunk(tensor, _DIVIDED[layer], rank, size)]
        return [tensor]


def _split(name: str) -> tuple[str, str, str]:
    """`model.layers.0.self_attn`, `q_proj`, `weight`."""
    module, _, rest = name.rpartition(".")
    prefix, _, layer = module.rpartition(".")
    return prefix, layer, rest


def _chunk(tensor: torch.Tensor, dim: int, rank: int, size: int, multiple: int = 1) -> torch.Tensor:
    """Part `rank` of `size` equal ones along `dim`, whose length is a multiple of `multiple`."""
    tensor = _padded(tensor, dim, size * multiple)
    length = tensor.shape[dim] // size
    return tensor.narrow(dim, rank * length, length)


def _filled(vocabulary: torch.Tensor, size: int) -> torch.Tensor:
    """With the rows that SGLang adds, more of them where the ranks could not divide them."""
    filled = _padded(vocabulary, _ROWS, _VOCABULARY_MULTIPLE)
    if filled.shape[0] % size:
        return _padded(vocabulary, _ROWS, _VOCABULARY_MULTIPLE * size)
    return filled


def _padded(tensor: torch.Tensor, dim: int, multiple: int) -> torch.Tensor:
    """With zeros at the end of `dim`, up to a multiple."""
    missing = -tensor.shape[dim] % multiple
    return torch.nn.functional.pad(tensor, (0, 0) * (tensor.dim() - dim - 1) + (0, missing))
