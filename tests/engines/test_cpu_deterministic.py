"""The deterministic sampler: the published hash, the distribution it samples, independence of the
batch."""

import struct

import pytest
import torch

from slime.engines.cpu_deterministic import multinomial_with_seed, murmur3


def murmur3_of_bytes(data: bytes) -> int:
    """MurmurHash3_x86_32 with seed 0, byte by byte as in its public-domain description."""
    h = 0
    for at in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 % 2**32
        k = (k << 15 | k >> 17) % 2**32 * 0x1B873593 % 2**32
        h ^= k
        h = ((h << 13 | h >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32
    h ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> shift) * factor % 2**32
    return h ^ h >> 16


def test_the_hash_is_murmur3():
    assert murmur3_of_bytes(b"test") == 0xBA6BD213  # a published test vector
    words = [[0, 1, 2**32 - 1, 0xDEADBEEF], [7, 0, 2**31, 5], [0, 2**32 - 1, 1, 12345]]
    hashed = murmur3(*(torch.tensor(word) for word in words))
    expected = [murmur3_of_bytes(struct.pack("<III", *row)) for row in zip(*words, strict=True)]
    assert hashed.tolist() == expected
    assert murmur3(torch.tensor([int.from_bytes(b"test", "little")])).tolist() == [0xBA6BD213]


def test_samples_the_distribution():
    probabilities = torch.tensor([0.5, 0.25, 0.125, 0.1, 0.025, 0.0])
    draws = 20000
    seeds = torch.arange(draws) + (3 << 32)
    tokens = multinomial_with_seed(
        probabilities.log().expand(draws, -1), seeds, torch.full((draws,), 9)
    )
    counts = torch.bincount(tokens.view(-1), minlength=6).double()
    expected = probabilities[:5].double() * draws
    assert counts[5] == 0
    chi_squared = ((counts[:5] - expected) ** 2 / expected).sum()
    assert chi_squared < 18.5  # 4 degrees of freedom: 99.9 %


@pytest.mark.parametrize("varied", ["seeds", "positions"])
def test_each_seed_and_each_position_draws_anew(varied: str):
    rows = torch.arange(4000)
    same = torch.full_like(rows, 5)
    seeds, positions = (rows, same) if varied == "seeds" else (same, rows)
    logprobs = torch.full((4000, 2), 0.5).log()
    tokens = multinomial_with_seed(logprobs, seeds, positions).view(-1)
    assert abs(tokens.double().mean() - 0.5) < 0.03  # four standard deviations
    following = (tokens[1:] == tokens[:-1]).double().mean()
    assert abs(following - 0.5) < 0.03


def test_a_row_does_not_depend_on_the_batch():
    torch.manual_seed(0)
    logprobs = torch.randn(32, 700).log_softmax(-1)
    seeds, positions = torch.randint(2**62, (32,)), torch.randint(1000, (32,))
    together = multinomial_with_seed(logprobs, seeds, positions)
    order = torch.randperm(32)
    assert torch.equal(
        multinomial_with_seed(logprobs[order], seeds[order], positions[order]), together[order]
    )
    alone = [
        multinomial_with_seed(logprobs[i : i + 1], seeds[i : i + 1], positions[i : i + 1])
        for i in range(32)
    ]
    assert torch.equal(torch.cat(alone), together)
