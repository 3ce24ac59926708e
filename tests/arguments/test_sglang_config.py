"""`--sglang-config`: its form, its sums, and what the plan makes of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.errors import ConfigError, Problem
from slime.arguments.parse import parse_args
from slime.arguments.plan import build_plan
from slime.arguments.print_config import render_resolved
from slime.arguments.sglang_config import ServerGroupConfig, SglangConfig

Collect = Callable[..., list[Problem]]
TWO_MODELS = """
sglang:
  - name: actor
    server_groups:
      - {worker_type: prefill, num_gpus: 2}
      - {worker_type: decode, num_gpus: 4, num_gpus_per_engine: 2, overrides: {log_level: error}}
  - name: reward
    model_path: reward
    num_gpus_per_engine: 3
    server_groups:
      - {worker_type: regular, num_gpus: 3}
      - {worker_type: placeholder, num_gpus: 1}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "sglang.yaml"


def test_models_are_resolved(argv: list[str], config: Path, tmp_path: Path) -> None:
    config.write_text(TWO_MODELS)
    args = parse_args(argv=[*argv, "--sglang-config", "sglang.yaml"])
    actor, reward = args.sglang_models
    assert (actor.model_path, actor.update_weights) == (args.hf_checkpoint, True)
    assert (reward.model_path, reward.update_weights) == (str(tmp_path / "reward"), False)
    assert [g.num_gpus_per_engine for g in actor.server_groups] == [1, 2]
    assert [g.num_gpus_per_engine for g in reward.server_groups] == [3, 3]
    assert actor.server_groups[1].overrides == {"log_level": "error"}
    assert args.rollout_num_gpus == 2 + 4 + 3 + 1
    assert args.rollout_num_engines == 2 + 2 + 1
    assert "sglang_models:\n- model_path: " in render_resolved(args)


def test_the_plan_shows_every_engine_and_router(argv: list[str], config: Path) -> None:
    config.write_text(TWO_MODELS)
    plan = build_plan(parse_args(argv=[*argv, "--sglang-config", str(config)]))
    names = [process.name for process in plan.processes]
    assert names.count("router of actor") == names.count("router of reward") == 1
    roles = [process.role for process in plan.processes if process.name.startswith("engine")]
    kinds = [role.removeprefix("SGLang ").rsplit(", ", 1)[0] for role in roles]
    assert kinds == [
        "tp1, float32, actor prefill",
        "tp1, float32, actor prefill",
        "tp2, float32, actor decode",
        "tp2, float32, actor decode",
        "tp3, float32, reward regular, frozen",
    ]


GROUP = "{worker_type: regular, num_gpus: 2}"


@pytest.mark.parametrize(
    ("text", "option", "message", "remedy"),
    [
        ("[]", "--sglang-config", "holds no list of models", "write sglang:"),
        ("sglang: {}", "--sglang-config", "holds no list of models", "write sglang:"),
        ("sglang: [1]", "sglang[0]", "is no mapping", "name"),
        (f"sglang: [{{server_groups: [{GROUP}]}}]", "sglang[0].name", "needed", "a text"),
        ("sglang: [{name: a}]", "sglang[0].server_groups", "needed", "a list"),
        ("sglang: [{name: a, server_groups: []}]", "sglang[0].server_groups", "no group", ""),
        (f"sglang: [{{name: a, groups: 1, server_groups: [{GROUP}]}}]", "sglang[0].groups",
         "no such key", "server_groups"),
        (f"sglang: [{{name: a, server_groups: [{GROUP}]}}, {{name: a, server_groups: [{GROUP}]}}]",
         "sglang[1].name", "used twice", "its own name"),
        ("sglang: [{name: a, server_groups: [{worker_type: decoder, num_gpus: 2}]}]",
         "sglang[0].server_groups[0].worker_type", "no such kind", "did you mean decode?"),
        ("sglang: [{name: a, server_groups: [{worker_type: regular, num_gpus: 0}]}]",
         "sglang[0].server_groups[0].num_gpus", "1 or more", ""),
        ("sglang: [{name: a, server_groups: [{worker_type: regular, num_gpus: true}]}]",
         "sglang[0].server_groups[0].num_gpus", "1 or more", ""),
        ("sglang: [{name: a, server_groups: [{worker_type: regular, num_gpu: 2, num_gpus: 2}]}]",
         "sglang[0].server_groups[0].num_gpu", "no such key", "did you mean num_gpus?"),
        ("sglang: [{name: a, server_groups: [{worker_type: prefill, num_gpus: 2}]}]",
         "sglang[0].server_groups", "has prefill but no decode", "add a decode group"),
        ("sglang: [{name: a, server_groups: [{worker_type: regular, num_gpus: 2,"
         " overrides: {port: 1}}]}]",
         "--sglang-port", "slime sets this option", "free loopback port"),
        ("sglang: [{name: a, server_groups: [{worker_type: regular, num_gpus: 3,"
         " num_gpus_per_engine: 2}]}]",
         "sglang[0].server_groups[0].num_gpus", "cannot be split into engines of 2",
         "multiple of 2"),
        (f"sglang: [{{name: a, model_path: x, server_groups: [{GROUP}]}}]", "--sglang-config",
         "no model gets the trained weights", "update_weights"),
    ],
)  # fmt: skip
def test_mistakes(
    problems_of: Collect, config: Path, text: str, option: str, message: str, remedy: str
) -> None:
    config.write_text(text)
    (problem,) = problems_of("--sglang-config", str(config))
    assert problem.option.removeprefix("--sglang-config ") == option
    assert message in problem.message
    assert remedy in problem.remedy


def test_the_sum_must_be_that_of_the_run(problems_of: Collect, config: Path) -> None:
    config.write_text(TWO_MODELS)
    (problem,) = problems_of("--sglang-config", str(config), "--rollout-num-gpus", "12")
    assert "has actor 6 + reward 4 = 10 GPUs, but --rollout-num-gpus is 12" in problem.message
    assert problem.remedy == "give --rollout-num-gpus 10"


def test_all_mistakes_come_at_once(problems_of: Collect, config: Path) -> None:
    config.write_text("sglang: [{name: 1, x: 2, server_groups: [{worker_type: y}]}]")
    words = ["--sglang-config", str(config), "--prefill-num-servers", "1"]
    assert len(problems_of(*words)) == 5


def test_a_file_that_cannot_be_read(problems_of: Collect, config: Path) -> None:
    (problem,) = problems_of("--sglang-config", "gone.yaml")
    assert problem.option == "--sglang-config" and "cannot be read" in problem.message
    config.write_text("sglang: [")
    (problem,) = problems_of("--sglang-config", str(config))
    assert "cannot be read" in problem.message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rollout-num-gpus 4 --prefill-num-servers 4", "no engine that decodes: there are 4"),
        ("--rollout-num-gpus 4 --prefill-num-servers 0", "at least 1"),
    ],
)
def test_prefill_servers_leave_some_that_decode(
    problems_of: Collect, words: str, message: str
) -> None:
    (problem,) = problems_of(*words.split())
    assert problem.option == "--prefill-num-servers" and message in problem.message


def test_prefill_servers_as_a_config(argv: list[str]) -> None:
    words = "--rollout-num-gpus 6 --rollout-num-gpus-per-engine 2 --prefill-num-servers 1"
    config = SglangConfig.from_prefill_num_servers(parse_args(argv=[*argv, *words.split()]))
    (model,) = config.models
    assert model.server_groups == [ServerGroupConfig("prefill", 2), ServerGroupConfig("decode", 4)]
    assert config.has_pd_disaggregation() and config.total_num_gpus() == 6
    assert not model.has_encoder_disaggregation()


def test_from_yaml_lists_mistakes(config: Path) -> None:
    config.write_text(TWO_MODELS)
    assert SglangConfig.from_yaml(str(config)).total_num_gpus() == 10
    config.write_text("sglang: [{}]")
    with pytest.raises(ConfigError) as caught:
        SglangConfig.from_yaml(str(config))
    assert len(caught.value.problems) == 2
