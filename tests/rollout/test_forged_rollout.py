"""Forged rollouts have the lengths and rewards they were told to have, again and again."""

import json
import time
from argparse import Namespace
from pathlib import Path

import pytest

from slime.arguments.errors import ConfigError
from slime.rollout.errors import RolloutError
from slime.rollout.forged_rollout import generate_rollout
from slime.samples.sample import Sample

LOAD = {"prompt_lengths": [3, 5], "response_lengths": [1, 7, 2], "rewards": [0, 1.5]}


class Source:
    """Groups of two, numbered on."""

    def __init__(self, first: int = 0) -> None:
        self.next = first

    def get_samples(self, count: int) -> list[list[Sample]]:
        groups = [
            [Sample(index=self.next + 2 * group + place, group_index=group) for place in range(2)]
            for group in range(count)
        ]
        self.next += 2 * count
        return groups


def make_args(folder: Path, load: object) -> Namespace:
    path = folder / "load.json"
    path.write_text(json.dumps(load))
    vocab = {"vocab_size": 11}
    return Namespace(load_forge_rollout_data=str(path), rollout_batch_size=3, hf_architecture=vocab)


def test_lengths_and_rewards_are_those_of_the_file(tmp_path: Path) -> None:
    groups = generate_rollout(make_args(tmp_path, LOAD), 0, Source()).samples
    samples = [sample for group in groups for sample in group]
    assert [len(group) for group in groups] == [2, 2, 2]
    assert [s.response_length for s in samples] == [1, 7, 2, 1, 7, 2]
    assert [len(s.tokens) - s.response_length for s in samples] == [3, 5, 3, 5, 3, 5]
    assert [s.reward for s in samples] == [0, 1.5, 0, 1.5, 0, 1.5]
    for sample in samples:
        sample.check_alignment()
        assert sample.status is Sample.Status.COMPLETED and set(sample.loss_mask) == {1}
        assert all(0 <= token < 11 for token in sample.tokens)
        assert all(value <= 0 for value in sample.rollout_log_probs)


def test_a_sample_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    args = make_args(tmp_path, LOAD)
    later = generate_rollout(args, 1, Source(first=2)).samples[0]
    assert later[0].tokens == generate_rollout(args, 0, Source()).samples[1][0].tokens
    assert later[0].tokens != later[1].tokens
    other = make_args(tmp_path, LOAD | {"seed": 1})
    assert generate_rollout(other, 1, Source(first=2)).samples[0][0].tokens != later[0].tokens


def test_it_sleeps_as_long_as_it_is_told(tmp_path: Path) -> None:
    started = time.monotonic()
    generate_rollout(make_args(tmp_path, LOAD | {"seconds": 0.25}), 0, Source())
    assert time.monotonic() - started >= 0.25


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (LOAD | {"lengths": [1]}, "lengths"),
        ({"rewards": [1]}, "prompt_lengths"),
        ([1], "describes no load"),
        (LOAD | {"prompt_lengths": []}, "prompt_lengths is \\[\\]"),
        (LOAD | {"response_lengths": [0]}, "response_lengths is \\[0\\]"),
        (LOAD | {"response_lengths": [1.5]}, "whole numbers"),
        (LOAD | {"rewards": ["a"]}, "rewards is"),
        (LOAD | {"seconds": -1}, "seconds is -1"),
        (LOAD | {"seed": 0.5}, "seed is 0.5"),
    ],
)
def test_a_load_that_says_something_else_is_refused(
    tmp_path: Path, load: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        generate_rollout(make_args(tmp_path, load), 0, Source())


def test_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RolloutError, match="eval-interval"):
        generate_rollout(make_args(tmp_path, LOAD), 0, Source(), evaluation=True)
