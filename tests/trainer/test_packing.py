"""Packed micro-batches: where the responses are, and attention that sees one sequence at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.trainer.packed_attention import PackedCoreAttention, gather_rows, plan_buckets

pytestmark = pytest.mark.usefixtures("single_rank")


@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=12))
def test_buckets_hold_every_row_once_and_pad_at_most_twofold(lengths):
    buckets = plan_buckets(lengths, torch.device("cpu"))
    rows = torch.cat([bucket.rows for bucket in buckets])
    assert sorted(rows.tolist()) == list(range(sum(lengths)))
    for bucket in buckets:
        assert bucket.count * bucket.length < 2 * len(bucket.rows)
        assert len(set(bucket.slots.tolist())) == len(bucket.slots)
        assert max(bucket.slots.tolist()) < bucket.count * bucket.length


def _attention():
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        num_layers=1,
        hidden_size=32,
        num_attention_heads=4,
        attention_dropout=0.0,
        use_cpu_initialization=True,
    )
    return PackedCoreAttention(config, 1, None, "self")


@settings(max_examples=10, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6), groups=st.sampled_from([1, 2, 4])
)
def test_packed_attention_equals_each_sequence_alone(lengths, groups):
    from slime.trainer.micro_batch import _packed_seq_params

    total = sum(lengths)
    q, k, v = (
        torch.randn(total, n, 8, dtype=torch.float64, requires_grad=True)
        for n in (4, groups, groups)
    )
    out = _attention()(
        q, k, v, None, packed_seq_params=_packed_seq_params(lengths, torch.device("cpu"))
    )
    alone = []
    for a, b, c in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True):
        b, c = (x.repeat_interleave(4 // groups, 1) for x in (b, c))
        scores = torch.einsum("qhd,khd->hqk", a, b) / 8**0.5
        causal = torch.ones(len(a), len(a), dtype=torch.bool).tril()
        weights = scores.masked_fill(~causal, float("-inf")).softmax(-1)
        alone.append(torch.einsum("hqk,khd->qhd", weights, c).flatten(1))
    want = torch.cat(alone)
    torch.testing.assert_close(out, want)
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    for got, expected in zip(
        grads, torch.autograd.grad(want.square().sum(), (q, k, v)), strict=True
    ):
        torch.testing.assert_close(got, expected)


def test_gathered_rows_have_the_gradient_of_indexing():
    x, index = torch.randn(6, 3, requires_grad=True), torch.tensor([4, 0, 5])
    scale = torch.randn(3, 3)
    (got,) = torch.autograd.grad((gather_rows(x, index) * scale).sum(), x)
    (want,) = torch.autograd.grad((x[index] * scale).sum(), x)
    assert torch.equal(got, want)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_the_rows_of_a_micro_batch_predict_its_response_tokens(
    sequence_parallel, hf_model, args_for, rollout_of
):
    from slime.trainer.micro_batch import micro_batches_of_step
    from slime.trainer.rollout_tensors import prepare

    args = args_for(hf_model(), tensor_model_parallel_size=4, sequence_parallel=sequence_parallel)
    data = prepare(args, rollout_of(0))
    seen = []
    for step in range(2):
        for batch in micro_batches_of_step(args, data, step):
            packed = batch.tokens[0]
            assert torch.equal(packed[batch.logit_rows + 1], batch.targets)
            responses = [data["tokens"][i][-data["response_lengths"][i] :] for i in batch.samples]
            assert torch.equal(batch.targets, torch.cat(responses))
            bounds = batch.packed_seq_params.cu_seqlens_q.tolist()
            assert bounds[-1] == len(packed)
            assert not sequence_parallel or len(packed) % 4 == 0
            starts = batch.position_ids[0].eq(0).nonzero().squeeze(1).tolist()
            assert starts == bounds[:-1]
            seen += batch.samples
    assert sorted(seen) == list(range(8))
