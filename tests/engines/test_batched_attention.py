"""Batched attention against attention computed token by token, head by head."""

import math

import pytest
import torch

from slime.engines import batched_attention as batched

HEADS, KV_HEADS, DIM = 6, 2, 8


def cache_of(lengths, seed=0):
    """A paged cache whose slots are shuffled, as after many evictions; slot 0 belongs to nobody and
    holds NaN."""
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randperm(sum(lengths), generator=generator) + 1
    keys = torch.randn(sum(lengths) + 1, KV_HEADS, DIM, generator=generator)
    values = torch.randn(sum(lengths) + 1, KV_HEADS, DIM + 2, generator=generator)
    keys[0] = values[0] = math.nan
    req_to_token = torch.zeros(len(lengths) + 3, max(lengths) + 5, dtype=torch.int32)
    rows = torch.tensor([len(lengths) + 2 - i for i in range(len(lengths))])
    start = 0
    for row, length in zip(rows, lengths, strict=True):
        req_to_token[row, :length] = slots[start : start + length]
        start += length
    return keys, values, req_to_token, rows


def naive(query, keys, values, slots, position, scaling):
    """Attention of one query vector [heads, dim] over the first `position + 1` tokens of a
    request."""
    result = []
    for head in range(HEADS):
        kv = head // (HEADS // KV_HEADS)
        k = keys[slots[: position + 1].long(), kv]
        weights = torch.softmax((k @ query[head]) * scaling, dim=0)
        result.append(weights @ values[slots[: position + 1].long(), kv])
    return torch.stack(result)


@pytest.mark.parametrize("lengths", [[1], [5, 5, 5], [1, 9, 4, 30]])
def test_decode_equals_attention_request_by_request(lengths):
    keys, values, table, rows = cache_of(lengths)
    query = torch.randn(len(lengths), HEADS, DIM, generator=torch.Generator().manual_seed(1))
    plan = batched.plan_decode(table, rows, torch.tensor(lengths))
    output = torch.empty(len(lengths), HEADS, DIM + 2)
    scaling = 1 / math.sqrt(DIM)
    batched.attend(query, output, keys, values, plan, scaling)
    for index, length in enumerate(lengths):
        expected = naive(query[index], keys, values, table[rows[index]], length - 1, scaling)
        torch.testing.assert_close(output[index], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("prefixes", "extends"), [([0], [7]), ([0, 3, 10], [4, 1, 6]), ([8, 0], [1, 12])]
)
def test_extend_equals_attention_request_by_request(prefixes, extends):
    lengths = [p + e for p, e in zip(prefixes, extends, strict=True)]
    keys, values, table, rows = cache_of(lengths)
    query = torch.randn(sum(extends), HEADS, DIM, generator=torch.Generator().manual_seed(2))
    plan = batched.plan_extend(
        table,
        rows,
        torch.tensor(lengths),
        torch.tensor(prefixes),
        torch.tensor(extends),
        HEADS // KV_HEADS,
    )
    output = torch.full((sum(extends), HEADS, DIM + 2), math.nan)
    batched.attend(query, output, keys, values, plan, 0.5)
    token = 0
    for index, (prefix, extend) in enumerate(zip(prefixes, extends, strict=True)):
        for offset in range(extend):
            slots = table[rows[index]]
            expected = naive(query[token], keys, values, slots, prefix + offset, 0.5)
            torch.testing.assert_close(output[token], expected, atol=1e-6, rtol=1e-5)
            token += 1


def test_one_long_request_among_short_ones_is_wasteful():
    assert batched.is_wasteful(torch.tensor([1000] + [10] * 60))
    assert not batched.is_wasteful(torch.tensor([1000] + [300] * 60))
    assert not batched.is_wasteful(torch.tensor([1000]))
