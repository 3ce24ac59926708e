"""Weights of Hugging Face checkpoints in fewer bits: FP8 in blocks, INT4 in groups.

Which, and which layers stay as they are, says the ``quantization_config`` of config.json:

- ``quant_method: fp8`` with ``weight_block_size``: float8_e4m3fn, and one float32 scale for each
  block (DeepSeek-V3, arXiv:2412.19437, section 3.3), called ``X.weight_scale_inv``.
- ``quant_method: compressed-tensors`` with 4-bit integers, symmetric, in groups of one row: eight
  to an int32 (``X.weight_packed``), with ``X.weight_scale`` and ``X.weight_shape``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

SCALE = "_scale_inv"
FP8 = torch.float8_e4m3fn
_FP8_MAX = torch.finfo(FP8).max  # 448
# Never quantised: the router, and the projection of a prediction layer.
_KEPT = re.compile(r"(\.mlp\.gate|\.eh_proj|\.input_proj)$")

NamedTensors = list[tuple[str, Tensor]]


def quantize_fp8_blocks(
    weight: Tensor, block: tuple[int, int], power_of_two: bool = False
) -> tuple[Tensor, Tensor]:
    """[rows, columns] -> the same in FP8, and float32 scales [blocks of rows, blocks of columns].

    A value is its FP8 number times its block's scale. A block of zeros has the scale 1.

    Args:
        power_of_two: scales are rounded up to a power of two (UE8M0), as DeepGEMM wants on some
            GPUs.
    """
    rows, columns = weight.shape
    down, across = (-(-n // size) for n, size in zip(weight.shape, block, strict=True))
    padded = weight.new_zeros(down * block[0], across * block[1], dtype=torch.float32)
    padded[:rows, :columns] = weight
    blocks = padded.view(down, block[0], across, block[1])
    largest = blocks.abs().amax(dim=(1, 3))
    scale = torch.where(largest == 0, 1.0, largest / _FP8_MAX)
    if power_of_two:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    scaled = (blocks / scale[:, None, :, None]).clamp(-_FP8_MAX, _FP8_MAX)
    return scaled.view_as(padded)[:rows, :columns].to(FP8).contiguous(), scale


def dequantize_fp8_blocks(
    weight: Tensor, scale: Tensor, block: tuple[int, int], begin: tuple[int, int] = (0, 0)
) -> Tensor:
    """The values, in float32, of a part of an FP8 matrix.

    Args:
        weight: [rows, columns], the part.
        scale: of the whole matrix.
        begin: where in the matrix the part begins.
    """
    down, across = (
        (start + torch.arange(n, device=scale.device)) // size
        for start, n, size in zip(begin, weight.shape, block, strict=True)
    )
    return weight.float() * scale[down][:, across]


def quantize_int4_groups(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """[rows, columns] -> integers -8 to 7 (int8), and scales [rows, columns / group_size].

    A value is its integer times its group's scale; the largest value of a group is 7.5 scales, and
    is rounded to 7 or -8. A group of zeros has the scale 1.

    Raises:
        ValueError: the columns are no whole groups.
    """
    rows, columns = weight.shape
    if columns % group_size:
        raise ValueError(f"{columns} columns are no whole groups of {group_size}")
    groups = weight.float().view(rows, -1, group_size)
    largest = groups.abs().amax(-1)
    # In the type that is stored: an integer must be right for the scale that it will be read with.
    scale = torch.where(largest == 0, 1.0, largest / 7.5).to(weight.dtype)
    integers = (groups / scale.float()[..., None]).round().clamp(-8, 7)
    return integers.view(rows, columns).to(torch.int8), scale


def pack_int4(integers: Tensor) -> Tensor:
    """[rows, columns] of -8 to 7 -> int32 [rows, columns / 8], the first column in the low bits."""
    nibbles = (integers.to(torch.int64) + 8).unflatten(1, (-1, 8))
    words = (nibbles << (4 * torch.arange(8, device=integers.device))).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def quantize_weights(
    tensors: NamedTensors, config: Mapping[str, Any], ue8m0: bool = True
) -> NamedTensors:
    """Named tensors as a checkpoint with this ``quantization_config`` has them.

    Args:
        ue8m0: scales become powers of two where the config says ``scale_fmt: ue8m0``.

    Raises:
        ValueError: the config asks for what is not supported here.
    """
    method = config.get("quant_method")
    if method == "fp8" and config.get("weight_block_size"):
        block = tuple(config["weight_block_size"])
        powers = ue8m0 and config.get("scale_fmt") == "ue8m0"
        return _each(tensors, config, lambda name, weight: _fp8(name, weight, block, powers))
    if method == "compressed-tensors":
        size = _int4_group_size(config)
        return _each(tensors, config, lambda name, weight: _int4(name, weight, size))
    raise ValueError(f"weights quantised by {method!r} ({sorted(config)}) are not supported")


def _each(tensors: NamedTensors, config: Mapping[str, Any], quantize: Any) -> NamedTensors:
    result: NamedTensors = []
    for name, tensor in tensors:
        result += quantize(name, tensor) if is_quantized(name, tensor, config) else [(name, tensor)]
    return result


def is_quantized(name: str, tensor: Tensor, config: Mapping[str, Any]) -> bool:
    """Whether the weight is one of those that the config quantises: matrices of the layers."""
    module = name.removesuffix(".weight")
    if module == name or tensor.dim() != 2 or ".layers." not in name or _KEPT.search(module):
        return False
    ignored = [*(config.get("ignore") or ()), *(config.get("modules_to_not_convert") or ())]
    return not any(_matches(pattern, module) for pattern in ignored)


def _matches(pattern: str, module: str) -> bool:
    """`re:` begins a regular expression; else it is a module, or one that holds it."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    return f".{pattern}." in f".{module}."


def _fp8(name: str, weight: Tensor, block: Any, power_of_two: bool) -> NamedTensors:
    values, scale = quantize_fp8_blocks(weight, block, power_of_two)
    return [(name, values), (name + SCALE, scale)]


def _int4(name: str, weight: Tensor, group_size: int) -> NamedTensors:
    integers, scale = quantize_int4_groups(weight, group_size)
    shape = torch.tensor(weight.shape, dtype=torch.int64, device=weight.device)
    return [
        (f"{name}_packed", pack_int4(integers)),
        (f"{name}_scale", scale),
        (f"{name}_shape", shape),
    ]


def _int4_group_size(config: Mapping[str, Any]) -> int:
    groups = list(config.get("config_groups", {}).values())
    weights = groups[0].get("weights", {}) if len(groups) == 1 else {}
    if (weights.get("num_bits"), weights.get("type"), weights.get("strategy")) != (
        4,
        "int",
        "group",
    ) or not weights.get("symmetric", True):
        raise ValueError("of compressed-tensors only one group of symmetric 4-bit integers is done")
    return int(weights["group_size"])
