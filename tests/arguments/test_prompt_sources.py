"""Several sources in `--prompt-data`."""

import math
import string
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slime.arguments.errors import ConfigError, Problem
from slime.arguments.parse import parse_args
from slime.arguments.print_config import render_config
from slime.arguments.prompt_sources import (
    PromptSource,
    parse_prompt_sources,
    quotas,
    render_prompt_sources,
)

Collect = Callable[..., list[Problem]]
NAMES = st.text(string.ascii_letters, min_size=1, max_size=5)
PATHS = st.text(string.ascii_letters + "/._-@[]:,", min_size=1, max_size=12)


@pytest.mark.parametrize(
    "path",
    ["train.jsonl", "train.jsonl@[0:10]", "/a=b/c.jsonl", "./a=b.jsonl", "//pkg:data", "a,b.jsonl"],
)
def test_any_other_value_is_one_path(path: str) -> None:
    assert parse_prompt_sources(path) == [PromptSource(path)]
    assert render_prompt_sources([PromptSource(path)]) == path


def test_several_sources() -> None:
    value = "math:3=m.jsonl, code:0.5=a,b/c.parquet@[:100],web=//data:web"
    assert parse_prompt_sources(value) == [
        PromptSource("m.jsonl", "math", "3"),
        PromptSource("a,b/c.parquet@[:100]", "code", "0.5"),
        PromptSource("//data:web", "web"),
    ]


@given(
    st.lists(
        st.builds(PromptSource, PATHS, NAMES, st.none() | st.integers(1, 9).map(str)), min_size=1
    )
)
def test_what_is_rendered_parses_to_the_same(sources: list[PromptSource]) -> None:
    assert parse_prompt_sources(render_prompt_sources(sources)) == sources


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(0, 500))
def test_quotas_are_the_shares_to_within_one(weights: list[float], total: int) -> None:
    shares = quotas(weights, total)
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        assert math.fabs(share - total * weight / math.fsum(weights)) < 1 + 1e-9


def test_paths_are_made_absolute_counted_and_printed(
    argv: list[str], prompts: Path, tmp_path: Path
) -> None:
    prompts.with_name("more.jsonl").write_text('{"input": "x", "label": "y"}\n' * 30)
    args = parse_args(argv=[*argv, "--prompt-data", "a:1=train.jsonl,b:3=more.jsonl@[:22]"])
    assert args.prompt_data == f"a:1={tmp_path}/train.jsonl,b:3={tmp_path}/more.jsonl@[:22]"
    assert args.num_rollout_per_epoch == (10 + 22) // 16
    printed = tmp_path / "printed.yaml"
    printed.write_text(render_config(args))
    assert yaml.safe_load(printed.read_text())["data"]["prompt_data"] == args.prompt_data
    assert parse_args(argv=["--config", str(printed)]).prompt_data == args.prompt_data


def test_every_source_must_name_its_grader_where_rm_type_does_not(
    argv: list[str], prompts: Path
) -> None:
    line = '{"input": "x", "label": "y", "metadata": {"rm_type": "math"}}\n'
    prompts.with_name("graded.jsonl").write_text(line)
    at = argv.index("--rm-type")
    words = [*argv[:at], *argv[at + 2 :], "--prompt-data"]
    assert parse_args(argv=[*words, "a=graded.jsonl,b=graded.jsonl"]).rm_type is None
    with pytest.raises(ConfigError, match="nobody grades the samples"):
        parse_args(argv=[*words, "a=graded.jsonl,b=train.jsonl"])


@pytest.mark.parametrize(
    ("value", "option", "message"),
    [
        ("a=train.jsonl,a=train.jsonl", "--prompt-data a", "used twice"),
        ("a:1=train.jsonl,b=train.jsonl", "--prompt-data b", "has no weight"),
        ("a:0=train.jsonl,b:1=train.jsonl", "--prompt-data a", "is no weight"),
        ("a:x=train.jsonl,b:1=train.jsonl", "--prompt-data a", "is no weight"),
        ("a:nan=train.jsonl,b:1=train.jsonl", "--prompt-data a", "is no weight"),
        ("a=,b=train.jsonl", "--prompt-data a", "has no path"),
        ("a=train.jsonl,b=gone.jsonl", "--prompt-data b", "no such file"),
        ("a:1=train.jsonl,b:999=train.jsonl", "--prompt-data a", "gets none of the 20 prompts"),
    ],
)
def test_mistakes(problems_of: Collect, value: str, option: str, message: str) -> None:
    (problem,) = problems_of("--prompt-data", value)
    assert problem.option == option
    assert message in problem.message


def test_a_bad_line_of_a_source_is_named(problems_of: Collect, prompts: Path) -> None:
    prompts.with_name("bad.jsonl").write_text("{}\n")
    (problem,) = problems_of("--prompt-data", "a=train.jsonl,b=bad.jsonl")
    assert problem.option == f"--prompt-data b {prompts.with_name('bad.jsonl')}:1"
    assert "has no key 'input'" in problem.message
