"""Fields of Megatron's configurations as options, with a Megatron of a few fields on the path."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slime.arguments import installed_options, megatron_passthrough
from slime.arguments.errors import Problem
from slime.arguments.flag import layer_pattern
from slime.arguments.megatron_passthrough import flag_of, megatron_flags
from slime.arguments.parse import parse_args
from slime.arguments.plan import build_plan
from slime.arguments.print_config import render_config

Collect = Callable[..., list[Problem]]
TRANSFORMER = """
class TransformerConfig(ModelParallelConfig):
    num_layers: int = 0
    moe_input_jitter_eps: Optional[float] = None
    moe_router_fusion: bool = False
    no_rope_freq: Optional[Union[int, List[int]]] = None
    mrope_section: Optional[List[int]] = None
    moe_token_drop_policy: Literal["probs", "position"] = "probs"
    num_moe_experts: Optional[int] = None
    init_method: Optional[Callable] = None
"""
OPTIMIZER = """
class OptimizerConfig:
    muon_num_ns_steps: int = 5
"""


@pytest.fixture(autouse=True)
def small_megatron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    core = tmp_path / "site" / "megatron" / "core"
    for file, text in (
        ("transformer/transformer_config.py", TRANSFORMER),
        ("optimizer/optimizer_config.py", OPTIMIZER),
    ):
        (core / file).parent.mkdir(parents=True)
        (core / file).write_text(text)
    paths = [str(tmp_path / "site")]
    monkeypatch.setattr(
        megatron_passthrough,
        "find_on_path",
        lambda relative: installed_options.find_on_path(relative, paths),
    )
    megatron_flags.cache_clear()
    yield
    megatron_flags.cache_clear()


def test_fields_without_an_option_of_slime_that_can_be_written_down() -> None:
    assert set(megatron_flags()) == {
        "moe_input_jitter_eps",
        "moe_router_fusion",
        "no_rope_freq",
        "mrope_section",
        "moe_token_drop_policy",
        "muon_num_ns_steps",
    }


WORDS = (
    "--moe-input-jitter-eps 1e-2 --moe-router-fusion --lr 1e-5 --no-rope-freq [0]*2+[1] "
    "--mrope-section 1 2 3 --moe-token-drop-policy=position --muon-num-ns-steps 6"
)
VALUES = {
    "moe_input_jitter_eps": 0.01,
    "moe_router_fusion": True,
    "no_rope_freq": [0, 0, 1],
    "mrope_section": [1, 2, 3],
    "moe_token_drop_policy": "position",
    "muon_num_ns_steps": 6,
}


def test_they_become_arguments_and_are_printed(argv: list[str], tmp_path: Path) -> None:
    args = parse_args(argv=[*argv, *WORDS.split()])
    assert {name: getattr(args, name) for name in VALUES} == VALUES
    assert args.lr == 1e-5
    assert build_plan(args).options["other"] == VALUES
    (tmp_path / "printed.yaml").write_text(render_config(args))
    assert yaml.safe_load((tmp_path / "printed.yaml").read_text())["megatron"] == VALUES
    again = parse_args(argv=["--config", "printed.yaml"])
    assert {name: getattr(again, name) for name in VALUES} == VALUES


def test_what_is_not_given_is_left_to_megatron(argv: list[str]) -> None:
    assert not VALUES.keys() & vars(parse_args(argv=argv)).keys()
    args = parse_args(argv=[*argv, "--no-moe-router-fusion"])
    assert args.moe_router_fusion is False


@pytest.mark.parametrize("start", ["", "megatron:\n  ", "moe:\n  "])
def test_they_may_stand_in_a_file(argv: list[str], tmp_path: Path, start: str) -> None:
    (tmp_path / "c.yaml").write_text(f"{start}mrope_section: [4, 5]\n")
    assert parse_args(argv=["--config", "c.yaml", *argv]).mrope_section == [4, 5]


@pytest.mark.parametrize(
    ("words", "option", "message", "remedy"),
    [
        ("--muon-num-ns-steps x", "--muon-num-ns-steps", "expected an integer", ""),
        ("--muon-num-ns-steps", "--muon-num-ns-steps", "got 0 words", ""),
        ("--muon-num-ns-steps 1 2", "--muon-num-ns-steps", "got 2 words", ""),
        ("--moe-token-drop-policy all", "--moe-token-drop-policy", "one of probs, position", ""),
        ("--moe-router-fusio", "--moe-router-fusio", "no such option", "--moe-router-fusion"),
        ("--num-moe-experts 4", "--num-moe-experts", "no such option", "use --num-experts"),
    ],
)
def test_mistakes(problems_of: Collect, words: str, option: str, message: str, remedy: str) -> None:
    problem = problems_of(*words.split())[0]
    assert (problem.option, message in problem.message) == (option, True)
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("annotation", "kind", "nargs", "choices"),
    [
        ("bool", bool, None, ()),
        ("Optional[float]", float, None, ()),
        ("Optional[Union[int, List[int]]]", layer_pattern, None, ()),
        ("Optional[list[str]]", str, "+", ()),
        ("Optional[Literal['a', 'b']]", str, None, ("a", "b")),
    ],
)
def test_types(annotation: str, kind: Any, nargs: str | None, choices: tuple[str, ...]) -> None:
    flag = flag_of("x_y", annotation, "")
    assert flag is not None
    assert (flag.name, flag.kind, flag.nargs, flag.choices) == ("--x-y", kind, nargs, choices)


@pytest.mark.parametrize("annotation", ["Callable", "torch.dtype", "Optional[RecipeConfig]"])
def test_types_that_cannot_be_written_down(annotation: str) -> None:
    assert flag_of("x", annotation, "") is None
