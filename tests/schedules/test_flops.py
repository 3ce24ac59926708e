"""The FLOPs model against a count of every matrix product, layer by layer."""

from argparse import Namespace

import pytest

from slime.schedules.flops import calculate_fwd_flops

DENSE = Namespace(
    num_layers=2,
    hidden_size=128,
    num_attention_heads=4,
    num_query_groups=2,
    kv_channels=32,
    ffn_hidden_size=384,
    vocab_size=100,
    swiglu=True,
    num_experts=None,
)


def matmul(m: int, k: int, n: int) -> int:
    return 2 * m * k * n


def attention(s: int) -> int:
    projections = matmul(s, 128, 128) + 2 * matmul(s, 128, 64) + matmul(s, 128, 128)
    scores = sum(matmul(1, 32, seen) for seen in range(1, s + 1)) * 4
    return projections + 2 * scores


@pytest.mark.parametrize("s", [1, 7, 64])
def test_dense(s: int) -> None:
    layer = attention(s) + 2 * matmul(s, 128, 384) + matmul(s, 384, 128)
    assert calculate_fwd_flops([s], DENSE) == 2 * layer + matmul(s, 128, 100)


def test_mixture_of_experts_counts_active_experts_only() -> None:
    moe = Namespace(
        **vars(DENSE)
        | {
            "num_experts": 8,
            "moe_router_topk": 2,
            "moe_ffn_hidden_size": 96,
            "moe_shared_expert_intermediate_size": 48,
            "moe_layer_freq": [0, 1],
        }
    )
    s = 5
    dense_layer = attention(s) + 3 * matmul(s, 128, 384)
    experts = 2 * 3 * matmul(s, 128, 96) + 3 * matmul(s, 128, 48) + matmul(s, 128, 8)
    expected = dense_layer + attention(s) + experts + matmul(s, 128, 100)
    assert calculate_fwd_flops([s], moe) == expected


def test_sequences_add_up_and_length_costs_more_than_linearly() -> None:
    whole = calculate_fwd_flops([512], DENSE)
    halves = calculate_fwd_flops([256, 256], DENSE)
    assert halves == 2 * calculate_fwd_flops([256], DENSE)
    assert whole > halves
