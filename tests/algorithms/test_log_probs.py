"""Log-probs and entropies against torch.log_softmax in float64, values and gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from slime.algorithms import log_probs
from slime.algorithms.log_probs import VocabShard, _forward_chunk, calculate_log_probs_and_entropy


def _brute(logits, tokens, temperature=1.0, columns=None):
    scaled = logits.double()[:, :columns] / temperature
    log_p = torch.log_softmax(scaled, -1)
    return log_p.gather(1, tokens[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 9),
    vocab=st.integers(2, 40),
    pad=st.integers(0, 3),
    chunk=st.sampled_from([-1, 1, 4]),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_equal_brute_force(n, vocab, pad, chunk, temperature, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(n, vocab + pad, generator=generator) * 4).requires_grad_()
    tokens = torch.randint(0, vocab, (n,), generator=generator)
    weights = torch.randn(2, n, generator=generator)
    got = calculate_log_probs_and_entropy(
        logits, tokens, None, True, chunk, temperature=temperature, vocab_size=vocab
    )
    (grad,) = torch.autograd.grad((weights[0] * got[0] + weights[1] * got[1]).sum(), logits)
    want = _brute(logits, tokens, temperature, vocab)
    (want_grad,) = torch.autograd.grad((weights[0] * want[0] + weights[1] * want[1]).sum(), logits)
    torch.testing.assert_close(got[0].double(), want[0], rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(got[1].double(), want[1], rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(grad.double(), want_grad.double(), rtol=1e-4, atol=2e-5)


class _Largest(TorchDispatchMode):
    """Notes the most numbers that an operation has made."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and not made._is_view():
            self.numel = max(self.numel, made.numel())
        return made


def test_left_to_itself_it_works_on_pieces_of_bounded_size(monkeypatch):
    monkeypatch.setattr(log_probs, "_PIECE", 200)
    logits, tokens = torch.randn(50, 64), torch.randint(0, 64, (50,))
    with _Largest() as pieces:
        got = calculate_log_probs_and_entropy(logits, tokens, None, True, -1)
    with _Largest() as at_once:
        want = calculate_log_probs_and_entropy(logits, tokens, None, True, 50)
    assert (pieces.numel, at_once.numel) == (3 * 64, 50 * 64)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def test_a_metric_entropy_has_no_gradient_and_changes_none():
    logits = torch.randn(3, 5, requires_grad=True)
    tokens = torch.tensor([0, 4, 2])
    log_probs, entropy = calculate_log_probs_and_entropy(
        logits, tokens, None, with_entropy=True, with_entropy_grad=False
    )
    assert not entropy.requires_grad
    (grad,) = torch.autograd.grad(log_probs.sum(), logits)
    (want,) = torch.autograd.grad(_brute(logits, tokens)[0].sum(), logits)
    torch.testing.assert_close(grad, want.float())


def test_keep_mask_renormalises_over_the_kept_tokens_only():
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]], requires_grad=True)
    keep = torch.tensor([[False, True, False, True]])
    log_probs, entropy = calculate_log_probs_and_entropy(
        logits, torch.tensor([1]), None, with_entropy=True, log_prob_keep_mask=keep
    )
    assert log_probs.item() == pytest.approx(-2.126928, abs=1e-5)  # log(e / (e + e^3))
    assert entropy.item() == pytest.approx(_brute(logits, torch.tensor([1]))[1].item(), abs=1e-6)
    (grad,) = torch.autograd.grad(log_probs.sum(), logits)
    assert grad[0, 0] == 0 and grad[0, 2] == 0


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[3e4, -3e4, 0.0], [-1e30, 1e30, 0.0]], requires_grad=True)
    log_probs, entropy = calculate_log_probs_and_entropy(logits, torch.tensor([0, 1]), None, True)
    (log_probs.sum() + entropy.sum()).backward()
    assert log_probs.tolist() == [0.0, 0.0]
    assert torch.isfinite(entropy).all() and torch.isfinite(logits.grad).all()


def test_half_precision_logits_are_worked_on_in_float32():
    logits = torch.randn(4, 300).bfloat16()
    tokens = torch.tensor([1, 2, 3, 299])
    log_probs, _ = calculate_log_probs_and_entropy(logits, tokens, None)
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.double(), _brute(logits, tokens)[0], rtol=1e-5, atol=1e-5)


def test_no_rows():
    log_probs, entropy = calculate_log_probs_and_entropy(
        torch.empty(0, 7), torch.empty(0, dtype=torch.long), None, True
    )
    assert log_probs.shape == entropy.shape == (0,)


def test_a_shard_of_padding_only_holds_no_token():
    shard = VocabShard(None, start=8, valid=0, temperature=1.0)
    log_prob, log_z, _ = _forward_chunk(torch.zeros(1, 4), torch.tensor([3]), shard, True)
    assert log_z.item() < -1e30  # it adds nothing to the normaliser
    assert torch.isfinite(log_z).all() and torch.isfinite(log_prob).all()
