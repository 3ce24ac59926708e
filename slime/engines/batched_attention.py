"""Attention of a whole batch of requests over a paged key/value cache, in one SDPA call (torch
only).

Names follow SGLang: `req_to_token[r, t]` is the cache slot of token t of request r; a cache is
[slots, kv_heads, head_dim]. Requests are padded to the longest, and a mask keeps the padding out.
The query heads that share a key/value head are laid out as further query positions, so no key or
value is repeated.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

# Padded work above this multiple of the real work is no gain over a loop (one very long request
# among short ones).
MAX_PADDING_RATIO = 8.0


@dataclass(frozen=True)
class GatherPlan:
    """Where the keys of each request lie and which query may see which key; the same for every
    layer."""

    slots: torch.Tensor
    """int [requests * max_keys]; padding points at a slot of the same request."""
    mask: torch.Tensor
    """bool [requests, 1, queries, max_keys]; queries is 1 for decode (broadcast over the heads of a
    group)."""
    max_keys: int
    query_rows: torch.Tensor | None
    """bool [requests, max_queries], True where a padded query row is real; None if every row is
    (decode)."""


def is_wasteful(lengths: torch.Tensor) -> bool:
    """Whether padding `lengths` to the longest multiplies the work beyond `MAX_PADDING_RATIO`."""
    return int(lengths.max()) * lengths.numel() > MAX_PADDING_RATIO * int(lengths.sum())


def plan_decode(
    req_to_token: torch.Tensor, req_pool_indices: torch.Tensor, seq_lens: torch.Tensor
) -> GatherPlan:
    """Plan for one new token per request; `seq_lens` [requests] counts that token."""
    max_keys = int(seq_lens.max())
    valid = torch.arange(max_keys) < seq_lens[:, None]
    slots = _slots(req_to_token, req_pool_indices, valid)
    return GatherPlan(slots, valid[:, None, None], max_keys, None)


def plan_extend(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_lens: torch.Tensor,
    group_size: int,
) -> GatherPlan:
    """Plan for `extend_lens` [requests] new tokens after `prefix_lens` cached ones; query p sees
    keys 0..p."""
    max_keys, max_queries = int(seq_lens.max()), int(extend_lens.max())
    key_positions = torch.arange(max_keys)
    valid = key_positions < seq_lens[:, None]
    query_positions = prefix_lens[:, None] + torch.arange(max_queries)
    visible = (key_positions <= query_positions[:, :, None]) & valid[:, None]
    slots = _slots(req_to_token, req_pool_indices, valid)
    return GatherPlan(
        slots,
        visible.repeat(1, group_size, 1)[:, None],
        max_keys,
        torch.arange(max_queries) < extend_lens[:, None],
    )


def _slots(
    req_to_token: torch.Tensor, req_pool_indices: torch.Tensor, valid: torch.Tensor
) -> torch.Tensor:
    """Cache slots [requests * max_keys]. Padding repeats the request's first token: what is masked
    must still be finite, because 0 * NaN is NaN."""
    slots = req_to_token[req_pool_indices, : valid.shape[1]]
    return torch.where(valid, slots, slots[:, :1]).reshape(-1)


def attend(
    query: torch.Tensor,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    plan: GatherPlan,
    scaling: float | None,
) -> torch.Tensor:
    """Write the attention of `query` [tokens, heads, head_dim] into `output` [tokens, heads,
    v_head_dim].

    Tokens of one request are adjacent, in the order of the plan's requests.
    """
    requests, kv_heads = plan.mask.shape[0], k_cache.shape[1]
    group = query.shape[1] // kv_heads
    keys = _gather(k_cache, plan, requests, query.dtype)
    values = _gather(v_cache, plan, requests, query.dtype)
    if plan.query_rows is None:
        rows = query.view(requests, kv_heads, group, -1)
        result = scaled_dot_product_attention(
            rows, keys, values, attn_mask=plan.mask, scale=scaling
        )
        output.view(requests, kv_heads, group, -1).copy_(result)
        return output
    max_queries = plan.query_rows.shape[1]
    padded = query.new_zeros(requests, max_queries, *query.shape[1:])
    padded[plan.query_rows] = query
    rows = padded.view(requests, max_queries, kv_heads, group, -1).permute(0, 2, 3, 1, 4)
    result = scaled_dot_product_attention(
        rows.reshape(requests, kv_heads, group * max_queries, -1),
        keys,
        values,
        attn_mask=plan.mask,
        scale=scaling,
    )
    result = result.view(requests, kv_heads, group, max_queries, -1).permute(0, 3, 1, 2, 4)
    output.copy_(result.reshape(requests, max_queries, query.shape[1], -1)[plan.query_rows])
    return output


def _gather(
    cache: torch.Tensor, plan: GatherPlan, requests: int, dtype: torch.dtype
) -> torch.Tensor:
    """[slots, kv_heads, dim] -> [requests, kv_heads, max_keys, dim] in the query's dtype."""
    rows = cache.index_select(0, plan.slots).to(dtype)
    return rows.view(requests, plan.max_keys, *cache.shape[1:]).transpose(1, 2)
