"""Every response token is held exactly once, by the rank that has its logit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime.algorithms.cp import (
    chunk_length,
    logits_and_tokens_offset,
    slice_response,
    slice_zigzag,
)


@given(total=st.integers(2, 60), cp_size=st.sampled_from([1, 2, 3, 4]), data=st.data())
def test_the_ranks_share_the_response_without_overlap(total, cp_size, data):
    response = data.draw(st.integers(1, total - 1))
    values = torch.arange(response)
    parts = [slice_response(values, total, response, cp_size, rank) for rank in range(cp_size)]
    assert sorted(torch.cat(parts).tolist()) == values.tolist()
    as_lists = [
        slice_response(values.tolist(), total, response, cp_size, rank) for rank in range(cp_size)
    ]
    assert as_lists == [part.tolist() for part in parts]


@given(total=st.integers(2, 60), cp_size=st.sampled_from([2, 4]), data=st.data())
def test_the_logit_before_each_token_is_in_the_ranks_chunks(total, cp_size, data):
    response = data.draw(st.integers(1, total - 1))
    for rank in range(cp_size):
        chunk, chunks, logits, tokens = logits_and_tokens_offset(total, response, cp_size, rank)
        assert chunk == chunk_length(total, cp_size)
        for (low, high), (begin, end), (first, last) in zip(chunks, logits, tokens, strict=True):
            assert (first, last) == (begin + 1, end + 1)
            assert begin == end or low <= begin < end <= high
            assert begin == end or total - response <= first < last <= total


@given(total=st.integers(1, 40), cp_size=st.sampled_from([1, 2, 3]))
def test_zigzag_slices_hold_every_token_and_padding_once(total, cp_size):
    tokens = torch.arange(1, total + 1)
    parts = [slice_zigzag(tokens, 0, cp_size, rank) for rank in range(cp_size)]
    held = sorted(t for part in parts for t in part.tolist() if t)
    assert held == tokens.tolist()
    if cp_size > 1:
        assert {len(part) for part in parts} == {2 * chunk_length(total, cp_size)}


def test_first_rank_holds_the_outer_chunks():
    assert slice_zigzag(torch.arange(8), 0, 2, 0).tolist() == [0, 1, 6, 7]
    assert slice_zigzag(torch.arange(8), 0, 2, 1).tolist() == [2, 3, 4, 5]


def test_a_wrong_length_is_an_error():
    with pytest.raises(ValueError, match="3 values for a response of 2"):
        slice_response([1, 2, 3], 4, 2, 1, 0)
