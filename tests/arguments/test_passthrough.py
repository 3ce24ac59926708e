"""`--sglang-X` and `--router-X`."""

from pathlib import Path
from typing import Any

import pytest

from slime.arguments.passthrough import TARGETS, Target, check, convert, expected_instead
from slime.arguments.raw import read_raw

KNOWN = {
    "mem_fraction_static": "Optional[float]",
    "served_model_name": "Optional[str]",
    "max_total_tokens": "Optional[int]",
    "cuda_graph_bs": "Optional[List[int]]",
    "enable_metrics": "bool",
    "model_loader_extra_config": "str",
    "unknown_kind": "",
    "backend": "Optional[Literal['off', '1', 'auto']]",
}
SGLANG = Target("sglang", "sglang_server_args", "SGLang", lambda: KNOWN, {"port": "no"})


@pytest.mark.parametrize(
    ("option", "words", "value"),
    [
        ("backend", ["off"], "off"),
        ("backend", ["1"], "1"),
        ("mem_fraction_static", ["0.8"], 0.8),
        ("mem_fraction_static", ["1"], 1.0),
        ("mem_fraction_static", ["1e-1"], 0.1),
        ("served_model_name", ["123"], "123"),
        ("max_total_tokens", ["20000"], 20000),
        ("cuda_graph_bs", ["4"], [4]),
        ("cuda_graph_bs", ["1", "2"], [1, 2]),
        ("enable_metrics", [], True),
        ("enable_metrics", ["false"], False),
        ("model_loader_extra_config", ['{"a": 1}'], '{"a": 1}'),
        ("unknown_kind", ["5"], 5),
        ("unknown_kind", ["007"], "007"),
        ("unknown_kind", ["2024-01-01"], "2024-01-01"),
        ("unknown_kind", ["text: : bad"], "text: : bad"),
        ("unknown_kind", ["-1"], -1),
    ],
)
def test_values_get_the_type_of_the_option(option: str, words: list[str], value: object) -> None:
    found = convert(SGLANG, option, words)
    assert found == value
    assert type(found) is type(value)


def test_words_are_split_between_slime_and_the_programs() -> None:
    words = "--lr 1 --sglang-mem-fraction-static 0.8 --sglang-enable-metrics --seed 2"
    words += " --sglang-router-ip h --router-policy=random --rollout-stop a b"
    raw, _ = read_raw(words.split(), environment={})
    assert raw.values["sglang_server_args"] == {"mem_fraction_static": 0.8, "enable_metrics": True}
    assert raw.values["router_args"] == {"policy": "random"}
    assert raw.values["sglang_router_ip"] == "h"
    assert (raw.values["lr"], raw.values["seed"]) == (1.0, 2)
    assert raw.values["rollout_stop"] == ["a", "b"]
    assert raw.origins["sglang_server_args.mem_fraction_static"] == "command line"


@pytest.mark.parametrize(
    "text",
    [
        "sglang:\n  mem-fraction-static: 0.8\n  router_ip: h\nrouter: {policy: random}",
        "sglang_mem_fraction_static: 0.8\nsglang_router_ip: h\nrouter-policy: random",
        "sglang_server_args: {mem_fraction_static: 0.8}\n"
        "router_args: {policy: random}\nsglang_router_ip: h",
    ],
)
def test_files_have_three_ways_to_say_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    raw, problems = read_raw(["--config", "a.yaml"], environment={})
    assert problems == []
    assert raw.values["sglang_server_args"] == {"mem_fraction_static": 0.8}
    assert raw.values["router_args"] == {"policy": "random"}
    assert raw.values["sglang_router_ip"] == "h"


def test_the_command_line_wins_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("sglang: {mem_fraction_static: 0.8, max_total_tokens: 5}")
    words = ["--config", "a.yaml", "--sglang-mem-fraction-static", "0.5"]
    raw, _ = read_raw(words, environment={})
    expected = {"mem_fraction_static": 0.5, "max_total_tokens": 5}
    assert raw.values["sglang_server_args"] == expected


def test_an_unknown_option_gets_a_suggestion() -> None:
    problem = check(SGLANG, "mem_fraction_statik", 1, "command line")
    assert problem is not None
    assert problem.option == "--sglang-mem-fraction-statik"
    assert problem.remedy == "did you mean --sglang-mem-fraction-static?"


def test_known_options_pass_and_own_options_are_refused() -> None:
    assert check(SGLANG, "mem_fraction_static", 1, "") is None
    assert check(SGLANG, "no_enable_metrics", True, "") is None
    assert check(SGLANG, "port", 1, "") is not None


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "words"),
    [
        ("int", [1, -3, None], [1.5, "x", True, [1]], "an integer"),
        ("Optional[float]", [1, 0.5], ["x", False], "a number"),
        ("bool", [True, False], [1, "yes"], "true or false"),
        ("Literal['a', 'b']", ["a", "b"], ["c", 1], "one of a, b"),
        ("Optional[Literal[1]]", [1, None], [2], "one of 1"),
        ("Optional[List[int]]", [[1], "whatever"], [], ""),
        ("", [1, "x", True], [], ""),
    ],
)
def test_values_of_the_wrong_type_are_refused(
    kind: str, right: list[Any], wrong: list[Any], words: str
) -> None:
    assert [expected_instead(kind, value) for value in right] == [""] * len(right)
    assert [expected_instead(kind, value) for value in wrong] == [words] * len(wrong)
    target = Target("sglang", "d", "SGLang", lambda: {"x": kind})
    for value in wrong:
        problem = check(target, "x", value, "run.yaml:3")
        assert problem is not None and f"expected {words} (run.yaml:3)" == problem.message


def test_nothing_is_checked_where_the_program_is_not_installed() -> None:
    assert check(Target("sglang", "d", "SGLang", dict), "whatever", 1, "") is None


@pytest.mark.parametrize("option", ["model_path", "host", "port", "tp_size", "device"])
def test_what_slime_sets_is_refused(option: str) -> None:
    problem = check(TARGETS[0], option, 1, "run.yaml:3")
    assert problem is not None
    assert "run.yaml:3" in problem.message
    assert problem.remedy
