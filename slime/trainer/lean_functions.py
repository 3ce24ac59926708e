"""Parts of a layer as one autograd function each, which keep their inputs and little else.

Megatron's own versions without TransformerEngine are chains of small operations: autograd keeps
what each of them made, for a layer more than its matrix products need, and on a CPU the chain costs
more time than the work. Backward computes again here what is cheap to compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


class _RMSNorm(torch.autograd.Function):
    """x / rms(x) * weight over the last dimension, computed in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        scale = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).mul_(weight.float()).to(x.dtype)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        normed, grad = x.float() * scale, grad.float()
        along = grad * normed
        grad_weight = along.flatten(0, -2).sum(0).to(weight.dtype)
        # The part along x does not change the norm: (g w) - x^ mean(g w x^).
        share = along.mul_(weight.float()).mean(-1, keepdim=True)
        grad_x = (grad * weight.float()).sub_(normed.mul_(share)).mul_(scale)
        return grad_x.to(x.dtype), grad_weight, None


class RMSNorm(torch.nn.RMSNorm):
    """torch's, keeping its input and one number per row."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> [..., size]."""
        assert self.eps is not None and self.weight is not None
        return _RMSNorm.apply(x, self.weight, self.eps)


class _SwiGLU(torch.autograd.Function):
    """silu(a) * b for x = [a, b]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        gate, value = x.chunk(2, -1)
        return F.silu(gate).mul_(value)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gate, value = x.chunk(2, -1)
        grad_x = torch.empty_like(x)
        grad_gate, grad_value = grad_x.chunk(2, -1)
        torch.ops.aten.silu_backward.grad_input(grad * value, gate, grad_input=grad_gate)
        torch.mul(F.silu(gate), grad, out=grad_value)
        return grad_x


def swiglu(x: Tensor, bias: None = None, *unused: Any) -> Tensor:
    """[..., 2 h] -> [..., h]; takes the place of Megatron's ``bias_swiglu_impl``."""
    assert bias is None, "no layer here has a bias"
    return _SwiGLU.apply(x)


def weighted_swiglu(x: Tensor, bias: None, weights: Tensor, *unused: Any) -> Tensor:
    """The same times ``weights`` [..., 1], which a router gives."""
    return (swiglu(x, bias) * weights).to(x.dtype)


class _Rotate(torch.autograd.Function):
    """t cos + rotate_half(t) sin over the first ``cos.size(-1)`` columns; the rest passes."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(t, cos, -sin.chunk(2, -1)[0], sin.chunk(2, -1)[1])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        first, second = sin.chunk(2, -1)
        return _rotated(grad, cos, second, -first), None, None


def _rotated(t: Tensor, cos: Tensor, from_second: Tensor, from_first: Tensor) -> Tensor:
    """t cos, plus each half times its factor in the place of the other."""
    size = cos.size(-1)
    out = torch.empty(t.shape, dtype=t.dtype, device=t.device)
    out[..., size:] = t[..., size:]
    turned = torch.mul(t[..., :size], cos, out=out[..., :size])
    first, second = t[..., :size].chunk(2, -1)
    into_first, into_second = turned.chunk(2, -1)
    into_first.addcmul_(second, from_second)
    into_second.addcmul_(first, from_first)
    return out


def rotation(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Megatron's ``apply_rotary_pos_emb``, faster for packed sequences, else ``plain``.

    Megatron takes cosines of the angles anew in every layer, for queries and for keys. They depend
    on the bounds of the sequences alone, so they are kept on that tensor, one per micro-batch.
    """

    def rotate(
        t: Tensor,
        freqs: Tensor,
        config: Any,
        cu_seqlens: Tensor | None = None,
        mscale: float = 1.0,
        cp_group: Any = None,
    ) -> Tensor:
        """t [tokens, heads, dim], freqs [longest sequence, 1, 1, rotated dim]."""
        split = cp_group is None or cp_group.size() > 1
        if cu_seqlens is None or split or config.rotary_interleaved:
            return plain(t, freqs, config, cu_seqlens, mscale, cp_group)
        kept = getattr(cu_seqlens, "rotation", None)
        if kept is None or kept[0] is not freqs or kept[1:3] != (mscale, t.dtype):
            bounds = cu_seqlens.long()
            starts = bounds[:-1].repeat_interleave(bounds.diff())
            angles = freqs[torch.arange(len(starts), device=t.device) - starts, 0]
            cos, sin = ((f(angles) * mscale).to(t.dtype) for f in (torch.cos, torch.sin))
            kept = cu_seqlens.rotation = (freqs, mscale, t.dtype, cos, sin)  # type: ignore
        return _Rotate.apply(t, *kept[3:])

    return rotate
