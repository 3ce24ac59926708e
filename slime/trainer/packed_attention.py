"""Core attention on torch's SDPA for packed (thd) micro-batches, with context parallelism.

Sequences of one micro-batch lie end to end. A dense [T, T] mask would cost T^2; instead sequences
of similar length are padded into small [n, heads, length, dim] batches, on which SDPA runs with
`is_causal`. Padding is at the end of a row, where causality already hides it from every real token.
On a CPU one autograd function does all that and keeps what came packed: the padded batches, with
keys and values once per query head, take several times the memory, and are made again in backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.module import MegatronModule
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Bucket:
    """Sequences padded to one length."""

    count: int
    length: int
    rows: Tensor  # [real tokens] their rows in the packed tensor
    slots: Tensor  # [real tokens] their places in the flattened [count * length] batch


def plan_buckets(lengths: list[int], device: torch.device) -> list[Bucket]:
    """Group sequences of similar lengths, so that padding at most doubles the tokens."""
    lens = torch.tensor(lengths)
    starts = lens.cumsum(0) - lens
    order = torch.argsort(lens, descending=True, stable=True)
    buckets: list[Bucket] = []
    while order.numel():
        longest = int(lens[order[0]])
        if longest == 0:
            break
        taken = int((lens[order] * 2 > longest).sum())
        members, order = order[:taken].sort().values, order[taken:]
        member_lens = lens[members]
        which = torch.arange(taken).repeat_interleave(member_lens)
        offset = torch.arange(len(which)) - (member_lens.cumsum(0) - member_lens)[which]
        rows, slots = starts[members][which] + offset, which * longest + offset
        buckets.append(Bucket(taken, longest, rows.to(device), slots.to(device)))
    return buckets


class _Scatter(torch.autograd.Function):
    """out[index[i]] = x[i] in ``size`` rows of zeros; distinct indices: backward is a gather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        return x.new_zeros(size, *x.shape[1:]).index_copy_(0, index, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.index_select(0, ctx.saved_tensors[0]), None, None


class _Gather(torch.autograd.Function):
    """out[i] = x[index[i]] for distinct indices; backward is a scatter, not an accumulation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = x.size(0)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.size, *grad.shape[1:]).index_copy_(0, index, grad), None


def gather_rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index] along dimension 0 for distinct indices, with a cheap backward."""
    return _Gather.apply(x, index)


class _PackedFlash(torch.autograd.Function):
    """Causal attention of the sequences in ``buckets`` by torch's flash attention for CPUs."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, buckets: list[Bucket], scale: float | None
    ) -> Tensor:
        """q [t, heads, dim], k and v [t, groups, dim] -> [t, heads, dim]."""
        out, normalisers = torch.zeros(q.shape, dtype=q.dtype), []
        for bucket in buckets:
            padded = _padded_heads(bucket, q, k, v)
            part, normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                *padded, 0.0, True, scale=scale
            )
            _put(bucket, part, out)
            normalisers.append(normaliser)
        ctx.save_for_backward(q, k, v, out, *normalisers)
        ctx.buckets, ctx.scale = buckets, scale
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, *normalisers = ctx.saved_tensors
        grads = tuple(torch.zeros(x.shape, dtype=x.dtype) for x in (q, k, v))
        for bucket, normaliser in zip(ctx.buckets, normalisers, strict=True):
            padded = _padded_heads(bucket, q, k, v)
            parts = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                _padded(bucket, grad).transpose(1, 2),
                *padded,
                _padded(bucket, out).transpose(1, 2),
                normaliser,
                0.0,
                True,
                scale=ctx.scale,
            )
            for part, whole in zip(parts, grads, strict=True):
                if part.size(1) != whole.size(1):
                    part = part.unflatten(1, (whole.size(1), -1)).sum(2)
                _put(bucket, part, whole)
        return *grads, None, None


def _padded(bucket: Bucket, x: Tensor) -> Tensor:
    """The sequences of the bucket from packed x [t, heads, dim]: [count, length, heads, dim]."""
    size = bucket.count * bucket.length
    batch = _Scatter.apply(_Gather.apply(x, bucket.rows), bucket.slots, size)
    return batch.view(bucket.count, bucket.length, *x.shape[1:])


def _padded_heads(bucket: Bucket, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """The bucket's queries, keys and values [count, heads, length, dim]."""
    padded = [_padded(bucket, x).transpose(1, 2) for x in (q, k, v)]
    return [_per_head(x, q.size(1)) for x in padded]


def _put(bucket: Bucket, batch: Tensor, out: Tensor) -> None:
    """The tokens of batch [count, heads, length, dim] to their places in packed ``out``."""
    flat = batch.transpose(1, 2).flatten(0, 1)
    out.index_copy_(0, bucket.rows, flat.index_select(0, bucket.slots))


def _per_head(x: Tensor, heads: int) -> Tensor:
    """Keys or values [n, groups, length, dim], once per query head."""
    return x if x.size(1) == heads else x.repeat_interleave(heads // x.size(1), 1)


class PackedCoreAttention(MegatronModule):
    """Causal self-attention of packed sequences; a Megatron core-attention module."""

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        k_channels: int | None = None,
        v_channels: int | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
    ) -> None:
        super().__init__(config)
        self.softmax_scale = softmax_scale
        self.dropout = config.attention_dropout if attention_dropout is None else attention_dropout

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        attn_mask_type: Any = None,
        attention_bias: Tensor | None = None,
        packed_seq_params: PackedSeqParams | None = None,
    ) -> Tensor:
        """query [t, heads, dim], key [t, groups, dim], value [t, groups, d] -> [t, heads * d]."""
        assert packed_seq_params is not None and packed_seq_params.qkv_format == "thd"
        if self.config.context_parallel_size > 1:
            return self._context_parallel(query, key, value, packed_seq_params)
        buckets = _buckets_of(packed_seq_params, query.device)
        dropout = self.dropout if self.training else 0.0
        if query.device.type == "cpu" and query.size(2) == value.size(2) and dropout == 0.0:
            return _PackedFlash.apply(query, key, value, buckets, self.softmax_scale).flatten(1)
        if len(buckets) == 1 and buckets[0].count == 1:
            return self._attend(query[None], key[None], value[None])[0].flatten(1)
        # Rows that belong to no sequence (padding) stay zero.
        rows = (query.size(0), query.size(1), value.size(2))
        out = query.new_zeros(rows) if len(buckets) > 1 else None
        for bucket in buckets:
            part = self._attend_bucket(query, key, value, bucket)
            if out is None:
                return _Scatter.apply(part, bucket.rows, query.size(0)).flatten(1)
            out = out.index_copy(0, bucket.rows, part)
        assert out is not None
        return out.flatten(1)

    def _attend_bucket(self, query: Tensor, key: Tensor, value: Tensor, bucket: Bucket) -> Tensor:
        """Attention of one bucket's sequences: [real tokens, heads, dim]."""
        q, k, v = (_padded(bucket, x) for x in (query, key, value))
        return _Gather.apply(self._attend(q, k, v).flatten(0, 1), bucket.slots)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None) -> Tensor:
        """[n, length, heads, dim] each; ``keep`` [length, keys] replaces plain causality."""
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=keep,
            is_causal=keep is None,
            scale=self.softmax_scale,
            dropout_p=self.dropout if self.training else 0.0,
            enable_gqa=q.size(2) != k.size(2),
        )
        return out.transpose(1, 2)

    def _context_parallel(
        self, query: Tensor, key: Tensor, value: Tensor, params: PackedSeqParams
    ) -> Tensor:
        """Zig-zag context parallelism: keys and values of all ranks are gathered, queries stay."""
        group = parallel_state.get_context_parallel_group()
        key, value = (
            gather_from_sequence_parallel_region(x.contiguous(), group=group) for x in (key, value)
        )
        lengths = _lengths_of(params)
        held = [
            _segments_and_positions(lengths, group.size(), r, query.device)
            for r in range(group.size())
        ]
        segment_q, position_q = held[group.rank()]
        segment_k, position_k = (torch.cat(parts) for parts in zip(*held, strict=True))
        same = segment_q[:, None] == segment_k[None]
        keep = same & (position_k[None] <= position_q[:, None])
        return self._attend(query[None], key[None], value[None], keep)[0].flatten(1)


def _lengths_of(params: PackedSeqParams) -> list[int]:
    """Lengths (padded, over all context-parallel ranks) of the packed sequences."""
    bounds = (
        params.cu_seqlens_q if params.cu_seqlens_q_padded is None else params.cu_seqlens_q_padded
    )
    return (bounds[1:] - bounds[:-1]).tolist()


def _buckets_of(params: PackedSeqParams, device: torch.device) -> list[Bucket]:
    """The plan of a micro-batch, made once and kept on the object that every layer is given."""
    buckets = getattr(params, "sdpa_buckets", None)
    if buckets is None:
        buckets = plan_buckets(_lengths_of(params), device)
        params.sdpa_buckets = buckets
    return buckets


def _segments_and_positions(
    lengths: list[int], cp_size: int, cp_rank: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """For each token a rank holds: the index of its sequence and its position in it."""
    segments, positions = [], []
    for index, length in enumerate(lengths):
        chunk = length // (2 * cp_size)
        for start in (cp_rank * chunk, (2 * cp_size - 1 - cp_rank) * chunk):
            positions.append(torch.arange(start, start + chunk, device=device))
            segments.append(torch.full((chunk,), index, device=device))
    return torch.cat(segments), torch.cat(positions)
