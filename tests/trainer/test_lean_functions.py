"""Functions that keep little for backward: values and gradients, and how much they keep."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

pytestmark = pytest.mark.usefixtures("single_rank")


def _same(got, want, inputs):
    torch.testing.assert_close(got, want)
    upstream = torch.randn_like(want)
    for a, b in zip(
        torch.autograd.grad(got, inputs, upstream, retain_graph=True),
        torch.autograd.grad(want, inputs, upstream, retain_graph=True),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def _kept(function, *inputs):
    """Numbers that autograd keeps for the backward of a call, a storage counted once."""
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(*inputs)
    assert result.requires_grad
    return sum(storages.values())


def test_rms_norm():
    from slime.trainer.lean_functions import RMSNorm

    norm = RMSNorm(8, eps=1e-3)
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(5, 3, 8, requires_grad=True)
    _same(norm(x), F.rms_norm(x, (8,), norm.weight, 1e-3), (x, norm.weight))
    assert _kept(norm, x) == x.numel() + x.numel() // 8 + 8


@pytest.mark.parametrize("weighted", [False, True])
def test_swiglu(weighted):
    from slime.trainer.lean_functions import swiglu, weighted_swiglu

    x, weights = (torch.randn(5, 3, size, requires_grad=True) for size in (8, 1))
    gate, value = x.chunk(2, -1)
    want = F.silu(gate) * value
    if weighted:
        _same(weighted_swiglu(x, None, weights), want * weights, (x, weights))
    else:
        _same(swiglu(x, None), want, (x,))
        assert _kept(swiglu, x, None) == x.numel()


@pytest.mark.parametrize("rotated", [4, 8])
def test_rotation_of_packed_sequences(rotated):
    from megatron.core import parallel_state
    from megatron.core.models.common.embeddings.rope_utils import apply_rotary_pos_emb

    from slime.trainer.lean_functions import rotation

    config = SimpleNamespace(
        apply_rope_fusion=False, rotary_interleaved=False, multi_latent_attention=False
    )
    angles = torch.randn(6, 1, 1, rotated // 2).repeat(1, 1, 1, 2)
    bounds = torch.tensor([0, 3, 9, 10], dtype=torch.int32)
    group = parallel_state.get_context_parallel_group()
    rotate = rotation(lambda *_: pytest.fail("went Megatron's way"))
    for heads, scale in ((4, 1.0), (2, 1.0), (2, 1.5)):  # the kept angles must fit the call
        t = torch.randn(10, heads, 8, requires_grad=True)
        want = apply_rotary_pos_emb(t, angles, config, bounds, scale, group)
        _same(rotate(t, angles, config, bounds, scale, group), want, (t,))
    other = angles + 1
    want = apply_rotary_pos_emb(t, other, config, bounds, 1.5, group)
    _same(rotate(t, other, config, bounds, 1.5, group), want, (t,))


def test_attention_keeps_no_padded_batches():
    from slime.trainer.micro_batch import _packed_seq_params
    from tests.trainer.test_packing import _attention

    lengths = [40, 21, 30, 5]
    total = sum(lengths)
    q, k, v = (torch.randn(total, n, 8, requires_grad=True) for n in (4, 2, 2))
    params = _packed_seq_params(lengths, torch.device("cpu"))
    attention = _attention()
    kept = _kept(lambda: attention(q, k, v, None, packed_seq_params=params))
    normalisers = 4 * (40 * 3 + 5)
    assert kept == (4 + 2 + 2 + 4) * 8 * total + normalisers
