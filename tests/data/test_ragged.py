"""Ragged arrays against lists of arrays."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.data.ragged import Ragged

Lists = list[list[int]]
lists_of = st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=6), max_size=6)


@settings(deadline=None)
@given(lists_of, st.randoms())
def test_it_is_a_list_of_arrays(values: Lists, random: Any) -> None:
    ragged = Ragged.from_lists(values, np.int32)
    assert len(ragged) == len(values)
    assert [part.tolist() for part in ragged] == values
    assert [ragged[i].tolist() for i in range(-len(values), len(values))] == values * 2
    assert [part.tolist() for part in ragged[1:4]] == values[1:4]
    assert ragged.lengths.tolist() == [len(value) for value in values]
    np.testing.assert_allclose(ragged.sums(), [float(sum(value)) for value in values])
    assert bool(ragged) == bool(values)


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(width=32, allow_nan=False), max_size=5), max_size=5))
def test_log_probs_keep_their_bits(values: list[list[float]]) -> None:
    ragged = Ragged.from_lists(values, np.float32)
    assert ragged.flat.tolist() == [number for value in values for number in value]


@pytest.mark.parametrize(
    ("masks", "dtype"),
    [
        ([[1, 1], [1, 0, 1], []], np.uint8),
        ([np.ones(2, np.uint8), [True, False]], np.uint8),
        ([[0.5, 1.0], [1, 1]], np.float32),
        ([[-1, 1]], np.float32),
        ([np.array([0.5, 1.0], np.float32)], np.float32),
        ([np.array([1.0, 0.0], np.float32)], np.uint8),
    ],
)
def test_masks_take_a_byte_where_they_are_whole_numbers(masks: list[Any], dtype: Any) -> None:
    ragged = Ragged.from_lists(masks, np.uint8)
    assert ragged.flat.dtype == dtype
    assert [part.tolist() for part in ragged] == [list(mask) for mask in masks]


def test_an_index_beyond_the_end() -> None:
    with pytest.raises(IndexError):
        Ragged.from_lists([[1]], np.int32)[1]


def test_it_travels_as_two_buffers_that_are_not_copied() -> None:
    ragged = Ragged.from_lists([[1, 2], [3]] * 1000, np.int32)
    buffers: list[pickle.PickleBuffer] = []
    message = pickle.dumps(ragged, protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 2 and len(message) < 500
    received = pickle.loads(message, buffers=buffers)
    assert np.shares_memory(received.flat, ragged.flat)
    assert [part.tolist() for part in received[:2]] == [[1, 2], [3]]
