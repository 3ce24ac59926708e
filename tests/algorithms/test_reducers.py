"""Reducers: the known right values, NaN under the mask, independence of micro-batching."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.algorithms.reducers import masked_mean, masked_whiten, sample_sum_reducer

NAN = float("nan")


def test_a_masked_nan_reaches_neither_value_nor_gradient():
    values = torch.tensor([1.0, NAN, 3.0], requires_grad=True)
    mean = masked_mean(values, torch.tensor([1.0, 0.0, 1.0]))
    mean.backward()
    assert mean.item() == 2.0
    assert values.grad.tolist() == [0.5, 0.0, 0.5]


def test_token_mean_ignores_masked_tokens():
    reduce = sample_sum_reducer([torch.tensor([1.0, 0.0])] * 2, calculate_per_token_loss=True)
    assert reduce(torch.tensor([1.0, 100.0, 1.0, -50.0])).item() / 2 == 1.0


def test_micro_batches_of_four_and_one_weigh_by_samples():
    one = [torch.ones(1)]
    total = sample_sum_reducer(one * 4)(torch.ones(4)) + sample_sum_reducer(one)(
        torch.tensor([3.0])
    )
    assert total.item() / 5 == pytest.approx(1.4)


def test_a_rollout_that_fanned_out_counts_once():
    masks = [torch.ones(2), torch.ones(4), torch.ones(3)]
    values = torch.tensor([1.0] * 2 + [4.0] * 4 + [2.0] * 3)
    reduce = sample_sum_reducer(masks, sample_denoms=[6.0, 6.0, 3.0])
    # rollout a: samples 0 and 1, mean (2 * 1 + 4 * 4) / 6 = 3; rollout b: mean 2
    assert reduce(values).item() / 2 == pytest.approx(2.5)


def test_a_sample_without_any_unmasked_token_adds_nothing():
    reduce = sample_sum_reducer([torch.zeros(2), torch.ones(1)])
    assert reduce(torch.tensor([NAN, 7.0, 2.0])).item() == 2.0


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    per_token=st.booleans(),
    data=st.data(),
)
def test_any_split_into_micro_batches_gives_the_same_sum_and_gradient(lengths, per_token, data):
    generator = torch.Generator().manual_seed(sum(lengths))
    masks = [(torch.rand(n, generator=generator) > 0.4).float() for n in lengths]
    values = torch.randn(sum(lengths), generator=generator, dtype=torch.float64).requires_grad_()
    whole = sample_sum_reducer(masks, calculate_per_token_loss=per_token)(values)
    (grad,) = torch.autograd.grad(whole, values)
    cut = data.draw(st.integers(0, len(lengths)))
    halves = [part for part in (slice(0, cut), slice(cut, None)) if masks[part]]
    parts = values.split([sum(lengths[part]) for part in halves])
    split = sum(
        sample_sum_reducer(masks[part], calculate_per_token_loss=per_token)(v)
        for part, v in zip(halves, parts, strict=True)
    )
    assert split.item() == pytest.approx(whole.item(), abs=1e-6)
    torch.testing.assert_close(torch.autograd.grad(split, values)[0], grad)


def test_whitening_a_constant_gives_zeros():
    white = masked_whiten([torch.full((777,), 20.1)], [torch.ones(777)])
    assert white[0].abs().max().item() < 1e-5


def test_whitening_ignores_masked_values_and_keeps_the_shapes():
    values = [torch.tensor([1.0, NAN, 3.0]), torch.tensor([5.0])]
    masks = [torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0])]
    white = masked_whiten(values, masks)
    unmasked = torch.tensor([white[0][0], white[0][2], white[1][0]])
    assert white[0][1] == 0.0
    assert unmasked.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert unmasked.std(unbiased=False).item() == pytest.approx(1.0, abs=1e-6)


def test_whitening_survives_a_large_offset():
    values = torch.tensor([0.0, 1.0, 2.0, 3.0]) + 1e6
    white = masked_whiten([values], [torch.ones(4)])[0]
    assert white.std(unbiased=False).item() == pytest.approx(1.0, abs=1e-4)
