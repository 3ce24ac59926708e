"""The quick start's task, verifier and prompt files."""

import asyncio
import json
import random
from argparse import Namespace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.quickstart.make_data import NUM_EVAL, NUM_TRAIN, make_data
from examples.quickstart.task import TASKS, exact_match, is_held_out, questions


def read_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def expected_answer(text: str) -> str:
    verb, argument = text.removesuffix("=").split(" ")
    return {"reverse": lambda s: "".join(reversed(s)), "sort": lambda s: "".join(sorted(s))}[verb](
        argument
    )


@pytest.mark.parametrize("task", sorted(TASKS))
def test_files_hold_right_answers_and_share_no_question(task: str, tmp_path: Path) -> None:
    make_data(task, tmp_path)
    train, held_out = read_rows(tmp_path / "train.jsonl"), read_rows(tmp_path / "eval.jsonl")
    texts = [row["input"][0]["content"] for row in train + held_out]
    assert (len(train), len(held_out)) == (NUM_TRAIN, NUM_EVAL)
    assert len(set(texts)) == len(texts)
    assert all(
        expected_answer(t) == row["label"] for t, row in zip(texts, train + held_out, strict=True)
    )
    assert {message["role"] for row in train for message in row["input"]} == {"user"}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_data("reverse", tmp_path / name, seed)
    a, b, c = ((tmp_path / name / "train.jsonl").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize("task", sorted(TASKS))
@given(seed=st.integers(0, 2**32))
def test_no_question_is_on_both_sides(task: str, seed: int) -> None:
    for held_out in (False, True):
        for question in islice(questions(task, random.Random(seed), held_out), 5):
            assert is_held_out(question) == held_out


def test_about_a_sixteenth_is_held_out() -> None:
    rng = random.Random(0)
    share = sum(is_held_out(TASKS["reverse"](rng)) for _ in range(20_000)) / 20_000
    assert share == pytest.approx(1 / 16, abs=0.01)


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        ("dcba", "dcba", 1.0),
        (" dcba\n", "dcba", 1.0),
        ("dcb", "dcba", 0.0),
        ("dcbaa", "dcba", 0.0),
        ("DCBA", "dcba", 0.0),
        ("idk", "dcba", 0.0),
        ("", "dcba", 0.0),
        ("", None, 0.0),
    ],
)
def test_only_the_exact_answer_counts(response: str, label: str | None, reward: float) -> None:
    sample = SimpleNamespace(response=response, label=label)
    assert asyncio.run(exact_match(Namespace(), sample)) == reward
