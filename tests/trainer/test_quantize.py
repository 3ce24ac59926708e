"""Quantised weights: error bounds, zero blocks, other libraries' formats, and what stays whole."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.launch.fp8_cast_bf16 import dequantize
from slime.trainer.quantize import (
    dequantize_fp8_blocks,
    is_quantized,
    pack_int4,
    quantize_fp8_blocks,
    quantize_int4_groups,
    quantize_weights,
)

FP8_CONFIG = {"quant_method": "fp8", "weight_block_size": [128, 128]}
INT4_CONFIG = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {
                "num_bits": 4,
                "type": "int",
                "strategy": "group",
                "symmetric": True,
                "group_size": 32,
            }
        }
    },
    "ignore": ["lm_head", "re:.*self_attn.*"],
}


def _weight(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    """Blocks of very different sizes; one of zeros."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator)
    weight *= torch.exp2(torch.arange(columns) // 128 * 4.0 - 8)
    weight[:128, :128] = 0
    return weight


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 300), columns=st.integers(1, 300), power=st.booleans())
def test_fp8_blocks_keep_three_bits_of_every_value(rows, columns, power):
    weight = _weight(rows, columns)
    values, scale = quantize_fp8_blocks(weight, (128, 128), power)
    assert values.shape == weight.shape and values.dtype == torch.float8_e4m3fn
    assert torch.isfinite(scale).all() and (scale > 0).all()
    if power:
        assert torch.equal(scale, torch.exp2(torch.log2(scale).round()))
    back = dequantize_fp8_blocks(values, scale, (128, 128))
    each = dequantize_fp8_blocks(torch.ones_like(weight), scale, (128, 128))
    # half of the last of 3 bits; below 2^-6 of a scale numbers are 2^-9 of it apart
    assert ((back - weight).abs() <= torch.maximum(weight.abs() / 16, each * 2**-10) * 1.001).all()
    assert not back[:128, :128].any()


def test_fp8_agrees_with_the_cast_to_bf16_and_with_parts_of_a_matrix():
    values, scale = quantize_fp8_blocks(_weight(200, 300), (128, 128))
    whole = dequantize_fp8_blocks(values, scale, (128, 128))
    assert torch.equal(whole.bfloat16(), dequantize(values, scale))
    part = dequantize_fp8_blocks(values[100:190, 50:], scale, (128, 128), begin=(100, 50))
    assert torch.equal(part, whole[100:190, 50:])


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 40), groups=st.integers(1, 4), seed=st.integers(0, 9))
def test_int4_is_half_a_step_off_at_most(rows, groups, seed):
    weight = torch.randn(rows, groups * 32, generator=torch.Generator().manual_seed(seed))
    weight[0, :32] = 0
    integers, scale = quantize_int4_groups(weight, 32)
    assert integers.min() >= -8 and integers.max() <= 7
    step = scale.repeat_interleave(32, 1)
    assert ((integers * step - weight).abs() <= step * 0.5001).all()
    assert not integers[0, :32].any() and torch.isfinite(scale).all()


def test_int4_words_are_those_of_compressed_tensors():
    from compressed_tensors.compressors import pack_to_int32, unpack_from_int32

    integers = torch.randint(-8, 8, (6, 64), dtype=torch.int8)
    packed = pack_int4(integers)
    assert torch.equal(packed, pack_to_int32(integers, 4))
    assert torch.equal(unpack_from_int32(packed, 4, integers.shape), integers)


def test_int4_needs_whole_groups():
    with pytest.raises(ValueError, match="33 columns are no whole groups of 32"):
        quantize_int4_groups(torch.zeros(2, 33), 32)


@pytest.mark.parametrize(
    ("name", "shape", "fp8", "int4"),
    [
        ("model.layers.0.mlp.experts.3.up_proj.weight", (128, 64), True, True),
        ("model.layers.0.self_attn.q_proj.weight", (128, 64), True, False),
        ("model.layers.0.mlp.gate.weight", (4, 64), False, False),
        ("model.layers.0.mlp.gate_proj.weight", (128, 64), True, True),
        ("model.layers.0.input_layernorm.weight", (64,), False, False),
        ("model.layers.0.self_attn.q_proj.bias", (128,), False, False),
        ("model.layers.61.eh_proj.weight", (64, 128), False, False),
        ("model.embed_tokens.weight", (128, 64), False, False),
        ("lm_head.weight", (128, 64), False, False),
    ],
)
def test_which_weights_are_quantised(name, shape, fp8, int4):
    weight = torch.randn(shape)
    assert is_quantized(name, weight, FP8_CONFIG) == fp8
    assert is_quantized(name, weight, INT4_CONFIG) == int4
    names = [n for n, _ in quantize_weights([(name, weight)], FP8_CONFIG)]
    assert names == ([name, f"{name}_scale_inv"] if fp8 else [name])
    names = [n for n, _ in quantize_weights([(name, weight)], INT4_CONFIG)]
    assert names == ([f"{name}_{x}" for x in ("packed", "scale", "shape")] if int4 else [name])


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "gptq"},
        {"quant_method": "fp8"},
        {**INT4_CONFIG, "config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
    ],
)
def test_other_kinds_of_quantisation_are_refused(config):
    with pytest.raises(ValueError, match=r"not supported|only one group"):
        quantize_weights([("model.layers.0.mlp.up_proj.weight", torch.zeros(128, 128))], config)
