"""What ranks hold, put together again, and the checksum of GPUs in plain numbers."""

import pytest
import torch

from slime.weights.equality import ExpectedChecksums, device_checksum, host_checksum
from slime.weights.shards import Shards

CONFIG = {"num_attention_heads": 8, "num_key_value_heads": 2, "num_experts": 2}
LAYER = "model.layers.0."


def parts(name, tensor, size, device="cuda"):
    shards = Shards(CONFIG, device)
    return [shards.part(name, tensor, rank, size) for rank in range(size)]


@pytest.mark.parametrize(
    ("name", "dim"),
    [
        ("self_attn.q_proj.weight", 0),
        ("self_attn.q_proj.bias", 0),
        ("self_attn.o_proj.weight", 1),
        ("mlp.up_proj.weight", 0),
        ("mlp.down_proj.weight", 1),
        ("mlp.experts.1.down_proj.weight", 1),
    ],
)
def test_the_parts_of_all_ranks_are_the_whole(name, dim):
    tensor = torch.randn(64) if name.endswith("bias") else torch.randn(64, 64)
    pieces = [piece for (piece,) in parts(LAYER + name, tensor, 4)]
    assert torch.equal(torch.cat(pieces, dim), tensor)


def test_ranks_share_a_head_where_there_are_more_ranks_than_heads():
    tensor = torch.randn(2 * 8, 4)
    pieces = [piece for (piece,) in parts(LAYER + "self_attn.k_proj.weight", tensor, 4)]
    assert [torch.equal(piece, tensor[:8]) for piece in pieces] == [True, True, False, False]
    assert torch.equal(pieces[2], tensor[8:])
    assert torch.equal(pieces[3], tensor[8:])


def test_each_half_of_a_joined_matrix_is_divided_by_itself():
    tensor = torch.arange(8.0)[:, None]
    first, second = parts(LAYER + "mlp.gate_up_proj.weight", tensor, 2)
    assert torch.cat(first).flatten().tolist() == [0, 1, 4, 5]
    assert torch.cat(second).flatten().tolist() == [2, 3, 6, 7]


def test_what_engines_fill_up():
    """Vocabularies to 64 rows, feed-forward layers on a CPU to 32 for each rank."""
    (first,), (second,) = parts("lm_head.weight", torch.ones(101, 3), 2)
    assert first.shape == second.shape == (64, 3)
    assert second.sum() == 37 * 3
    up = torch.ones(96, 3)
    (first,), (second,) = parts(LAYER + "mlp.up_proj.weight", up, 2, device="cpu")
    assert (first.sum(), second.sum(), second.shape) == (64 * 3, 32 * 3, (64, 3))


def test_experts_are_one_parameter_in_the_order_of_their_numbers():
    named = [
        (f"{LAYER}mlp.experts.{expert}.{kind}_proj.weight", torch.randn(4, 4))
        for expert in (1, 0)
        for kind in ("up", "gate", "down")
    ]
    expected = ExpectedChecksums(CONFIG, {1}, device="cuda")
    expected.add(named)
    tensors = dict(named)
    joined = [
        tensors[f"{LAYER}mlp.experts.{expert}.{kind}_proj.weight"]
        for expert in (0, 1)
        for kind in ("gate", "up")
    ]
    found = {f"{LAYER}mlp.experts.w13_weight": device_checksum([torch.cat(joined)])}
    assert expected.compare({"ranks": [{"checksums": found}]}) == ""
    found = {f"{LAYER}mlp.experts.w2_weight": "0"}
    assert "w2_weight" in expected.compare({"ranks": [{"checksums": found}]})
    assert "2 ranks" in expected.compare({"ranks": [{"checksums": found}] * 2})


def test_parts_have_the_checksum_of_what_they_are_together():
    parts = [torch.randn(3, 5).T, torch.randn(7)]
    whole = torch.cat([part.flatten() for part in parts])
    for checksum in (host_checksum, device_checksum):
        assert checksum(parts) == checksum([whole])
        assert checksum(parts) != checksum([whole + 1e-6])


def plain_device_checksum(content: bytes) -> str:
    """The definition of SGLang's kernels, word by word."""
    low = 0xFFFFFFFF
    content += bytes(-len(content) % 4)
    words = [int.from_bytes(content[i : i + 4], "little") for i in range(0, len(content), 4)]

    def mix(x):
        x ^= x >> 16
        x = x * 0x85EBCA6B & low
        x ^= x >> 13
        x = x * 0xC2B2AE35 & low
        return x ^ (x >> 16)

    def rotated(x, by):
        return (x << by | x >> (32 - by)) & low

    seed = 0x243F6A88
    other = ((seed * 0x9E3779B1) ^ 0xDEADBEEF) & low
    total = 0
    for start in range(0, len(words), 8192):
        first = second = 0
        for i in range(start, min(start + 8192, len(words))):
            place = ((i * 0x27D4EB2D + seed) & low) ^ rotated(i, 15)
            first += mix(words[i] ^ place)
            place = ((i * 0x165667B1 + other) & low) ^ rotated(i, 13)
            second += mix(words[i] ^ place)
        size = 4 * len(words) & low
        total += mix((first & low) ^ size) << 32 | mix((second & low) ^ size)
    total &= 2**64 - 1
    total = (total ^ (total >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    total = (total ^ (total >> 27)) * 0x94D049BB133111EB % 2**64
    return f"{total ^ (total >> 31):016x}"


@pytest.mark.parametrize("count", [1, 3, 8192 * 2, 8192 * 2 + 2 * 5 + 1])
def test_the_checksum_of_a_gpu_follows_its_definition(count):
    tensor = torch.randn(count, dtype=torch.bfloat16)
    content = tensor.view(torch.uint8).numpy().tobytes()
    assert device_checksum([tensor]) == plain_device_checksum(content)


def test_tiles_are_numbered_through(monkeypatch):
    """A tensor that is taken in several steps has the checksum of one step."""
    tensor = torch.randn(5 * 8192 + 7)
    whole = device_checksum([tensor])
    monkeypatch.setattr("slime.weights.equality._TILES_AT_ONCE", 2)
    assert device_checksum([tensor]) == whole
