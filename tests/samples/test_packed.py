"""Per-token fields that are kept as arrays: for everybody else they are lists, and exact."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.samples.packed import FIELDS, put, stored
from slime.samples.sample import Sample

floats = st.one_of(st.floats(allow_nan=False), st.floats(width=32, allow_nan=False))
pieces_of = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(-3, 2**33), floats), max_size=4),
        st.sampled_from(["read", "change", "replace", "leave"]),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(pieces_of)
def test_fields_equal_those_of_a_sample_made_of_lists(pieces: list) -> None:
    sample, tokens, log_probs = Sample(tokens=[1, 2]), [1, 2], []
    for piece, then in pieces:
        new_tokens, new_log_probs = [p[0] for p in piece], [p[1] for p in piece]
        sample.append_response_tokens(tokens=new_tokens, log_probs=new_log_probs)
        tokens, log_probs = tokens + new_tokens, log_probs + new_log_probs
        if then == "read":
            assert sample.tokens == tokens and sample.rollout_log_probs == log_probs
        elif then == "change" and log_probs:
            sample.tokens[-1], sample.rollout_log_probs[-1] = 7, 0.1
            tokens[-1], log_probs[-1] = 7, 0.1
        elif then == "replace":
            sample.tokens = list(sample.tokens)
    assert (sample.tokens, sample.rollout_log_probs or []) == (tokens, log_probs)
    assert sample.loss_mask is None or sample.loss_mask == [1] * len(log_probs)
    assert all(type(token) is int for token in sample.tokens)
    assert all(type(value) is float for value in sample.rollout_log_probs or [])


def generated() -> Sample:
    sample = Sample(tokens=[1, 2])
    sample.append_response_tokens(tokens=[3, 4], log_probs=[-0.5, -2.0])
    return sample


def test_what_is_generated_takes_nine_bytes_a_token() -> None:
    kinds = [stored(generated(), name).dtype for name in FIELDS[:3]]
    assert kinds == [np.int32, np.uint8, np.float32]


def test_log_probs_that_need_double_precision_keep_it() -> None:
    sample = generated()
    sample.append_response_tokens(tokens=[5], log_probs=[-0.1])
    assert stored(sample, "rollout_log_probs").dtype == np.float64
    assert sample.rollout_log_probs == [-0.5, -2.0, -0.1]


def test_a_list_that_was_read_is_the_one_the_sample_has() -> None:
    sample = generated()
    held = sample.tokens
    held.append(9)
    assert sample.tokens is held and stored(sample, "tokens") is held
    sample.loss_mask[0] = 0.25
    assert sample.loss_mask == [0.25, 1]
    assert not stored(generated(), "tokens").flags.writeable


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tokens", [-1, 5]),
        ("tokens", [2**31]),
        ("tokens", [2**40]),
        ("loss_mask", [0.5, 1]),
        ("loss_mask", [-1]),
        ("loss_mask", [256]),
        ("teacher_log_probs", [float("-inf"), 1e300]),
    ],
)
def test_numbers_that_an_array_would_change_stay(name: str, values: list) -> None:
    sample = Sample()
    put(sample, name, values)
    assert getattr(sample, name) == values


def test_what_is_no_number_is_refused_and_the_sample_unchanged() -> None:
    sample = generated()
    with pytest.raises(TypeError):
        sample.append_response_tokens(tokens=[5], log_probs=[None])
    assert (sample.tokens, sample.response_length) == ([1, 2, 3, 4], 2)


def test_copies_are_independent_and_stay_arrays() -> None:
    sample = generated()
    for other in (copy.deepcopy(sample), copy.copy(sample), pickle.loads(pickle.dumps(sample))):
        assert isinstance(stored(other, "tokens"), np.ndarray)
        other.tokens.append(9)
        assert other.tokens == [1, 2, 3, 4, 9]
    assert isinstance(stored(sample, "tokens"), np.ndarray)
    assert sample.tokens == [1, 2, 3, 4]


def test_a_dict_has_lists_and_the_sample_its_arrays() -> None:
    sample = generated()
    assert sample.to_dict()["tokens"] == [1, 2, 3, 4]
    sample.teacher_log_probs = np.zeros(2)
    assert isinstance(sample.to_dict()["teacher_log_probs"], np.ndarray)
    assert isinstance(stored(sample, "tokens"), np.ndarray)
    sample.teacher_log_probs = None
    assert Sample.from_dict(sample.to_dict()) == sample


def test_defaults_are_not_shared() -> None:
    first, second = Sample(), Sample()
    first.tokens.append(1)
    assert second.tokens == [] and second.loss_mask is None
    with pytest.raises(AttributeError, match="tokens"):
        Sample.__new__(Sample).tokens  # noqa: B018
