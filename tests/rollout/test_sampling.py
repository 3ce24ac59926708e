"""Sampling parameters and the arithmetic of context lengths."""

from argparse import Namespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime.arguments.eval_config import build_eval_dataset_configs
from slime.rollout.evaluation import eval_sampling_params
from slime.rollout.sampling import (
    max_context_len,
    remaining_new_tokens,
    seeded,
    train_sampling_params,
)
from slime.samples.sample import Sample


def sample(prompt_len, response_len=0):
    return Sample(tokens=[1] * (prompt_len + response_len), response_length=response_len)


@pytest.mark.parametrize(
    ("prompt", "response", "max_new", "context", "expected"),
    [
        (10, 0, 5, 100, 5),
        (10, 0, 5, 12, 2),  # the context ends first
        (10, 0, 5, 10, 0),
        (10, 0, 5, 9, 0),  # the prompt alone is too long
        (10, 3, 5, 100, 2),  # continued: 3 of 5 are used up
        (10, 5, 5, 100, 0),
        (10, 3, 5, 14, 1),
        (10, 0, None, 25, 15),  # only the context limits
    ],
)
def test_remaining_new_tokens(prompt, response, max_new, context, expected):
    assert remaining_new_tokens(sample(prompt, response), max_new, context) == expected


@given(st.integers(1, 50), st.integers(0, 50), st.integers(1, 60), st.integers(1, 90))
def test_a_response_in_pieces_is_as_long_as_one_in_one_go(prompt, pieces, max_new, context):
    whole = remaining_new_tokens(sample(prompt), max_new, context)
    done = min(pieces, whole)
    assert done + remaining_new_tokens(sample(prompt, done), max_new, context) == whole


def test_context_is_what_is_asked_for_and_at_most_what_the_model_has():
    args = Namespace(
        rollout_max_context_len=None,
        eval_max_context_len=None,
        hf_architecture={"max_position_embeddings": 256},
    )
    assert max_context_len(args) == 256
    args.rollout_max_context_len, args.eval_max_context_len = 100, 1000
    assert max_context_len(args) == 100
    assert max_context_len(args, evaluation=True) == 256
    args.eval_max_context_len = None
    assert max_context_len(args, evaluation=True) == 100


@pytest.fixture
def args():
    return Namespace(
        rollout_temperature=0.5,
        rollout_top_p=0.9,
        rollout_top_k=7,
        rollout_max_response_len=12,
        rollout_stop=["\n"],
        rollout_stop_token_ids=[1],
        rollout_skip_special_tokens=True,
        sglang_server_concurrency=8,
        rollout_num_engines=1,
        sglang_server_args={},
    )


def test_sampling_params_carry_every_option(args):
    assert train_sampling_params(args) == {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "max_new_tokens": 12,
        "stop": ["\n"],
        "stop_token_ids": [1],
        "skip_special_tokens": True,
        "no_stop_trim": True,
        "spaces_between_special_tokens": False,
    }


def test_defaults_of_evaluation_sets_reach_the_parameters_of_each(args):
    defaults = {
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "max_response_len": 30,
        "min_new_tokens": 2,
        "stop": ["."],
        "stop_token_ids": [3],
        "skip_special_tokens": False,
        "repetition_penalty": 1.1,
        "no_stop_trim": False,
    }
    entries = [{"name": "a", "path": "/a"}, {"name": "b", "path": "/b", "repetition_penalty": 1.0}]
    found = [
        eval_sampling_params(args, dataset)
        for dataset in build_eval_dataset_configs(args, entries, defaults)
    ]
    expected = {name: value for name, value in defaults.items() if name != "max_response_len"}
    expected |= {"max_new_tokens": 30, "spaces_between_special_tokens": False}
    assert found == [expected, expected | {"repetition_penalty": 1.0}]


def test_seeds_come_with_deterministic_engines_only():
    params = {"temperature": 1.0}
    args = Namespace(rollout_seed=3, sglang_server_args={})
    assert seeded(args, Sample(index=5), params) == params
    args.sglang_server_args = {"enable_deterministic_inference": True}
    assert seeded(args, Sample(index=5), params) == params | {"sampling_seed": (3 << 32) + 5}
    assert seeded(args, Sample(index=5), params | {"sampling_seed": 8})["sampling_seed"] == 8
    assert params == {"temperature": 1.0}


@given(st.integers(0, 2**40), st.integers(0, 2**31), st.integers(0, 2**31))
def test_samples_of_a_run_have_seeds_of_their_own(rollout_seed, one, other):
    args = Namespace(
        rollout_seed=rollout_seed, sglang_server_args={"enable_deterministic_inference": True}
    )
    first, second = (seeded(args, Sample(index=i), {})["sampling_seed"] for i in (one, other))
    assert (first == second) == (one == other)
    assert 0 <= first < 2**63  # what the engine's int64 holds
