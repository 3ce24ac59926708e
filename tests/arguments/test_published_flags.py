"""Names, types and defaults against the published list, with plain argparse as the oracle."""

import argparse
import ast
import json
from pathlib import Path
from typing import Any

import pytest

from slime.arguments.raw import read_raw
from slime.arguments.registry import all_flags

LINES = (Path(__file__).parent / "published_flags.txt").read_text().splitlines()
TYPES = {"str": str, "int": int, "float": float, "json.loads": json.loads}
DEFAULTS, _ = read_raw([], environment={})
# Flags of the published interface that switch an attribute off.
TARGETS = {
    "--disable-compute-advantages-and-returns": "compute_advantages_and_returns",
    "--disable-grpo-std-normalization": "grpo_std_normalization",
    "--disable-rewards-normalization": "rewards_normalization",
    "--disable-rollout-global-dataset": "rollout_global_dataset",
    "--disable-wandb-random-suffix": "wandb_random_suffix",
}


def published(line: str) -> tuple[str, dict[str, Any]]:
    """`--lr type=float, default=None` -> the arguments of argparse's add_argument."""
    name, _, rest = line.partition(" ")
    call = ast.parse(f"f({rest})", mode="eval").body
    assert isinstance(call, ast.Call)
    options: dict[str, Any] = {}
    for keyword in call.keywords:
        text = ast.unparse(keyword.value)
        if keyword.arg == "type":
            options["type"] = TYPES[text]
        elif text == "argparse.BooleanOptionalAction":
            options["action"] = argparse.BooleanOptionalAction
        elif text == "512 * 1024 ** 2":
            options["default"] = 512 * 1024**2
        else:
            options[str(keyword.arg)] = ast.literal_eval(keyword.value)
    if name in TARGETS:
        options["dest"] = TARGETS[name]
    return name, options


def words_for(name: str, options: dict[str, Any]) -> list[str]:
    """A value for the flag that is not its default."""
    if options.get("action") in ("store_true", "store_false", argparse.BooleanOptionalAction):
        return [name]
    if "choices" in options:
        value = options["choices"][-1]
    elif options.get("type") is json.loads:
        value = '{"a": 1}'
    else:
        value = {int: "7", float: "0.25", str: "some"}[options.get("type", str)]
    return [name, value, value] if options.get("nargs") in ("+", "*") else [name, value]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split(" ")[0])
def test_flag_is_as_published(line: str) -> None:
    name, options = published(line)
    oracle = argparse.ArgumentParser()
    oracle.add_argument(name, **options)
    words = words_for(name, options)
    raw, problems = read_raw(words, environment={})
    assert problems == []
    for found, given in ((DEFAULTS, []), (raw, words)):
        expected = vars(oracle.parse_args(given))
        (dest,) = expected
        assert found.values[dest] == expected[dest]
        if not isinstance(expected[dest], int):  # a float's default may be written as 0 or 1
            assert type(found.values[dest]) is type(expected[dest])
        assert found.given(dest) == bool(given)


def test_the_list_is_whole() -> None:
    assert len(LINES) == 202


def test_no_two_flags_share_a_name_or_an_attribute() -> None:
    names = [flag.name for flag in all_flags()]
    dests = [flag.dest for flag in all_flags()]
    assert len(set(names)) == len(names)
    assert len(set(dests)) == len(dests)
