"""Deltas against the arrays they were made from."""

import hashlib
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from slime.weights.delta_codec import apply, checksum, encode


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_delta_gives_back_the_new_bits(encoding, dtype, data):
    size = data.draw(st.integers(1, 40))
    raw = np.dtype(dtype).itemsize * size
    old = data.draw(arrays(np.uint8, raw))
    new = old.copy()
    for place in data.draw(st.lists(st.integers(0, raw - 1), max_size=5)):
        new[place] ^= data.draw(st.integers(0, 255))
    target = old.copy()
    apply(encode(new, old, np.dtype(dtype).itemsize, encoding), target, np.dtype(dtype).itemsize,
          encoding)  # fmt: skip
    assert np.array_equal(target, new)


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_what_did_not_change_costs_nothing_and_few_changes_little(encoding):
    old = np.random.default_rng(0).standard_normal(100_000).astype(np.float32).view(np.uint8)
    assert encode(old, old.copy(), 4, encoding) == b""
    new = old.copy()
    new[::40_000] ^= 1
    assert len(encode(new, old, 4, encoding)) < 300


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_a_delta_for_something_else_is_refused(encoding):
    old, new = np.zeros(80, np.uint8), np.ones(80, np.uint8)
    payload = encode(new, old, 4, encoding)
    with pytest.raises(ValueError, match="a delta"):
        apply(payload, np.zeros(40, np.uint8), 4, encoding)
    with pytest.raises(ValueError, match="damaged"):
        apply(b"nonsense", old, 4, encoding)


def test_checksums_are_the_published_ones():
    content = np.frombuffer(b"abc", np.uint8)
    assert checksum("adler32", content) == f"{zlib.adler32(b'abc'):08x}" == "024d0127"
    # XXH3-128 of "abc", from the reference implementation's test vectors.
    assert checksum("xxh3-128", content) == "06b05ab6733a618578af5f94892f3950"
    if hashlib.algorithms_available & {"blake3"}:
        pytest.fail("hashlib has BLAKE3: use it")
