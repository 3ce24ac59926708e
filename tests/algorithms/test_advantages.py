"""Advantages and returns against plain recursions in float64, and the known right values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.algorithms.advantages import (
    chunked_discounted_returns,
    chunked_gae,
    get_advantages_and_returns_batch,
    get_grpo_returns,
    get_ppo_advantages_and_returns,
    get_reinforce_plus_plus_baseline_advantages,
    get_reinforce_plus_plus_returns,
    vanilla_gae,
)

NAN = float("nan")


def _returns(rewards: list[float], gamma: float) -> list[float]:
    carry, out = 0.0, []
    for reward in reversed(rewards):
        carry = reward + gamma * carry
        out.append(carry)
    return out[::-1]


@settings(max_examples=30, deadline=None)
@given(
    length=st.integers(0, 40),
    chunk=st.sampled_from([1, 3, 8, 128]),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    seed=st.integers(0, 99),
)
def test_chunked_returns_equal_the_recursion(length, chunk, gamma, seed):
    rewards = torch.randn(
        3, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    got = chunked_discounted_returns(rewards, gamma, chunk)
    for row, out in zip(rewards.tolist(), got.tolist(), strict=True):
        assert out == pytest.approx(_returns(row, gamma), abs=1e-9)


@pytest.mark.parametrize("length", [1, 5, 127, 300])
@pytest.mark.parametrize(("gamma", "lambd"), [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0)])
def test_chunked_gae_equals_the_recursion(length, gamma, lambd):
    generator = torch.Generator().manual_seed(length)
    rewards, values = torch.randn(2, 4, length, generator=generator, dtype=torch.float64)
    for got, want in zip(
        chunked_gae(rewards, values, gamma, lambd),
        vanilla_gae(rewards, values, gamma, lambd),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_gae_with_lambda_one_is_return_minus_value():
    rewards, values = torch.randn(2, 1, 6, dtype=torch.float64)
    advantages, returns = vanilla_gae(rewards, values, 0.9, 1.0)
    want = _returns(rewards[0].tolist(), 0.9)
    assert returns[0].tolist() == pytest.approx(want)
    assert advantages[0].tolist() == pytest.approx(
        [r - v for r, v in zip(want, values[0].tolist(), strict=True)]
    )


def test_a_batch_of_lengths_equals_each_alone():
    lengths = [4, 1, 7]
    values, rewards = ([torch.randn(n) for n in lengths] for _ in range(2))
    got = get_advantages_and_returns_batch([9, 9, 9], lengths, values, rewards, 0.9, 0.8)
    for i in range(3):
        alone = vanilla_gae(rewards[i][None], values[i][None], 0.9, 0.8)
        torch.testing.assert_close(got[0][i], alone[0][0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got[1][i], alone[1][0], rtol=1e-5, atol=1e-5)


def test_grpo_gives_every_token_its_samples_reward():
    got = get_grpo_returns(torch.tensor([1.5, -2.0]), [torch.zeros(3), torch.zeros(1)])
    assert [a.tolist() for a in got] == [[1.5, 1.5, 1.5], [-2.0]]


def _reinforce(reward, kl, mask, kl_coef, gamma):
    n = len(mask)
    kl, mask = torch.tensor(kl), torch.tensor(mask)
    return get_reinforce_plus_plus_returns(
        torch.tensor([reward]), [kl], [mask], [n], [n + 1], kl_coef, gamma
    )[0].tolist()


def test_a_masked_observation_costs_no_discount():
    assert _reinforce(1.0, [0.0] * 3, [1.0, 0.0, 1.0], 0.0, 0.5) == [0.5, 0.0, 1.0]


def test_the_reward_lies_on_the_last_action_not_the_last_token():
    assert _reinforce(1.0, [0.0] * 3, [1.0, 1.0, 0.0], 0.0, 1.0) == [1.0, 1.0, 0.0]


def test_kl_is_a_cost_and_nan_under_the_mask_stays_there():
    got = _reinforce(1.0, [0.2, NAN, 0.4], [1.0, 0.0, 1.0], 0.1, 0.5)
    assert got == pytest.approx([-0.02 + 0.5 * (1.0 - 0.04), 0.0, 1.0 - 0.04])


def test_a_response_that_is_all_masked_has_no_return():
    assert _reinforce(3.0, [1.0, 1.0], [0.0, 0.0], 0.1, 0.9) == [0.0, 0.0]


def test_wrong_lengths_are_an_error():
    with pytest.raises(ValueError, match="response of 2 tokens"):
        get_reinforce_plus_plus_returns(
            torch.ones(1), [torch.zeros(3)], [torch.ones(2)], [2], [4], 0.0, 1.0
        )


def test_reinforce_baseline_subtracts_the_kl_cost():
    got = get_reinforce_plus_plus_baseline_advantages(
        torch.tensor([0.5]), [torch.tensor([1.0, NAN])], [torch.tensor([1.0, 0.0])], 0.1
    )
    assert got[0].tolist() == pytest.approx([0.4, 0.0])


@settings(max_examples=30, deadline=None)
@given(
    mask=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30),
    gamma=st.sampled_from([0.5, 1.0]),
    lambd=st.sampled_from([0.0, 0.9, 1.0]),
    kl_coef=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 99),
)
def test_ppo_over_a_masked_response_is_gae_over_its_actions_alone(
    mask, gamma, lambd, kl_coef, seed
):
    generator = torch.Generator().manual_seed(seed)
    kl, values = torch.randn(2, len(mask), generator=generator)
    where = torch.tensor(mask)
    actions = where.nonzero().squeeze(1)
    advantages, returns = [0.0] * len(mask), [0.0] * len(mask)
    carry = bootstrap = 0.0
    for t in reversed(actions.tolist()):
        reward = (2.0 if t == actions[-1] else 0.0) - kl_coef * kl[t].item()
        value = values[t].item()
        carry = reward + gamma * bootstrap - value + gamma * lambd * carry
        bootstrap, advantages[t], returns[t] = value, carry, carry + value
    kl[where == 0] = values[where == 0] = NAN
    got = get_ppo_advantages_and_returns(
        torch.tensor([2.0]), [kl], [values], [where], kl_coef, gamma, lambd
    )
    assert got[0][0].tolist() == pytest.approx(advantages, abs=1e-5)
    assert got[1][0].tolist() == pytest.approx(returns, abs=1e-5)


def test_ppo_of_a_batch_is_ppo_of_each():
    masks = [torch.ones(3), torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0]), torch.zeros(2)]
    values = [torch.randn(len(mask)) for mask in masks]
    kl = [torch.randn(len(mask)) for mask in masks]
    rewards = torch.tensor([1.0, -1.0, 5.0])
    whole = get_ppo_advantages_and_returns(rewards, kl, values, masks, 0.1, 0.9, 0.8)
    for i in range(3):
        part = slice(i, i + 1)
        alone = get_ppo_advantages_and_returns(
            rewards[part], kl[part], values[part], masks[part], 0.1, 0.9, 0.8
        )
        for got, want in zip(whole, alone, strict=True):
            torch.testing.assert_close(got[i], want[0], rtol=0, atol=1e-6)
