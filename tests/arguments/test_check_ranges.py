"""Numbers that mean nothing are refused, each once, and hide no other mistake."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.errors import ConfigError, Problem
from slime.arguments.parse import parse_args
from slime.arguments.registry import all_flags

Collect = Callable[..., list[Problem]]
NUMBERS = [flag.name for flag in all_flags() if flag.kind in (int, float)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--global-batch-size 0", "must be at least 1"),
        ("--lr nan", "must be at least 0"),
        ("--lr inf", "must be a finite number"),
        ("--gamma inf", "must be between 0 and 1"),
        ("--lr-warmup-fraction nan", "must be between 0 and 1"),
        ("--entropy-coef nan", "must be a finite number"),
    ],
)
def test_one_problem_for_one_number(problems_of: Collect, words: str, message: str) -> None:
    (problem,) = problems_of(*words.split())
    assert (problem.option, problem.message) == (words.split()[0], message)


@pytest.mark.parametrize("number", ["0", "-1", "1000000000000"])
def test_no_number_ends_in_a_traceback(argv: list[str], number: str) -> None:
    for name in NUMBERS:
        try:
            parse_args(argv=[*argv, f"{name}={number}"])
        except ConfigError as error:
            assert error.problems, name


def test_other_mistakes_come_with_them(problems_of: Collect) -> None:
    words = "--lr-decay-iters -1 --micro-batch-size 0 --tensor-model-parallel-size 2 --seed -1"
    assert {problem.option for problem in problems_of(*words.split())} == {
        "--lr-decay-iters",
        "--micro-batch-size",
        "--actor-num-gpus-per-node",  # 1 rank for 2 parts of the model
        "--seed",
    }


def test_the_line_of_a_file_is_named(problems_of: Collect, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("algorithm:\n  gamma: 2\n")
    (problem,) = problems_of("--config", "a.yaml")
    assert problem.where == "a.yaml:2"
