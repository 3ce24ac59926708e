"""`--print-config` gives a file that reproduces the run, whatever was given."""

import argparse
import math
import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.arguments.check_ranges import refuse_out_of_range
from slime.arguments.facts import Facts
from slime.arguments.flag import Flag, json_value, layer_pattern
from slime.arguments.parse import parse_args
from slime.arguments.print_config import render_config, render_resolved
from slime.arguments.raw import read_raw
from slime.arguments.registry import all_flags
from slime.arguments.resolve import resolve

TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20
).filter(lambda text: "${" not in text)
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | TEXT
SKIPPED = ("config", "print_config", "dry_run", "wandb_key", "eval_prompt_data")


def value_of(flag: Flag) -> st.SearchStrategy[Any]:
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(-(10**9), 10**9),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: TEXT,
        json_value: st.dictionaries(TEXT, LEAVES, max_size=3),
        layer_pattern: st.lists(st.integers(0, 1), min_size=1, max_size=5),
    }
    one = st.sampled_from(flag.choices) if flag.choices else kinds[flag.kind]
    if flag.path:
        one = TEXT.map(lambda text: "/" + text.strip("/"))
    return st.lists(one, min_size=1, max_size=3) if flag.nargs else one


OPTIONS = st.lists(
    st.sampled_from([flag for flag in all_flags() if flag.dest not in SKIPPED]),
    unique_by=lambda flag: flag.dest,
    max_size=12,
).flatmap(lambda flags: st.fixed_dictionaries({flag.dest: value_of(flag) for flag in flags}))
PASSED = st.dictionaries(
    st.text(string.ascii_lowercase, min_size=1, max_size=9).map("x_".__add__), LEAVES, max_size=3
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "printed.yaml"


@settings(max_examples=60, deadline=None)
@given(OPTIONS, PASSED)
def test_any_options_survive_the_way_through_yaml(
    file: Path, options: dict[str, Any], passed: dict[str, Any]
) -> None:
    """values -> YAML -> values -> --print-config -> values."""
    facts = Facts(device="cpu", directory="/here", now="now")
    text = yaml.safe_dump({**options, "router": passed}, allow_unicode=True)
    file.write_text(text)
    raw, _ = read_raw(["--config", str(file)], environment={})
    assert {dest: raw.values[dest] for dest in options} == options
    assert raw.values["router_args"] == passed

    refuse_out_of_range(raw)  # puts defaults in the places of numbers that mean nothing
    args = resolve(raw, facts)
    file.write_text(render_config(args))
    again, _ = read_raw(["--config", str(file)], environment={})
    expected = vars(args)
    found = vars(resolve(again, facts))
    assert found.keys() == expected.keys()
    for name in expected:
        if name not in ("config", "raw_options", "run_name", "run_dir", "save", "save_hf"):
            assert found[name] == expected[name], name


def test_the_printed_file_reproduces_a_whole_run(argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "seed: ${env:HOME:}\n".replace("${env:HOME:}", "${env:NONE:7}")
    )
    words = "--config a.yaml --disable-grpo-std-normalization --run-name r --sglang-log-level info"
    words += " --eval-prompt-data x train.jsonl --eval-interval 2 --prompt-data train.jsonl"
    args = parse_args(argv=[*argv, *words.split()])
    printed = tmp_path / "elsewhere" / "printed.yaml"
    printed.parent.mkdir()
    printed.write_text(render_config(args))
    again = parse_args(argv=["--config", str(printed)])
    different = {name for name in vars(args) if getattr(args, name) != getattr(again, name)}
    assert different == {"config", "raw_options"}  # a relative path is printed absolute
    assert yaml.safe_load(printed.read_text())["algorithm"] == {"grpo_std_normalization": False}
    assert render_config(again) == printed.read_text()


def test_the_device_found_is_pinned(argv: list[str]) -> None:
    assert yaml.safe_load(render_config(parse_args(argv=argv)))["run"] == {"device": "cpu"}


def test_custom_arguments_are_printed(argv: list[str], tmp_path: Path) -> None:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--agent-turns", type=int, default=4)

    text = render_config(parse_args(add, [*argv, "--agent-turns", "6"]))
    (tmp_path / "printed.yaml").write_text(text)
    assert parse_args(add, ["--config", "printed.yaml"]).agent_turns == 6


def test_a_secret_is_never_printed(argv: list[str]) -> None:
    args = parse_args(argv=[*argv, "--wandb-key", "s3cret"])
    assert "s3cret" not in render_config(args) + render_resolved(args)


def test_the_record_of_the_run_is_plain_yaml(argv: list[str]) -> None:
    args = parse_args(argv=[*argv, "--eval-prompt-data", "x", "train.jsonl"])
    record = yaml.safe_load(render_resolved(args))
    assert record["world_size"] == 1
    assert record["eval_datasets"][0]["name"] == "x"
    assert math.isclose(record["lr"], 1e-4)
    assert record["hf_architecture"]["vocab_size"] == 100
