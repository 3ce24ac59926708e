"""Settings per role."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.errors import ConfigError, Problem
from slime.arguments.parse import parse_args, parse_megatron_role_args
from slime.arguments.plan import build_plan
from slime.arguments.roles import args_of_role

Collect = Callable[..., list[Problem]]
FILE = """
megatron:
  - {name: default, role: critic, overrides: {lr: 1e-3, pipeline_model_parallel_size: 2}}
  - {role: actor, args: {clip-grad: 0.5, load: ckpt, bf16: true}}
"""


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    return tmp_path / "roles.yaml"


def test_a_role_gets_its_own_settings(argv: list[str], roles: Path, tmp_path: Path) -> None:
    base = parse_args(argv=argv)
    roles.write_text(FILE)
    critic = parse_megatron_role_args(base, "roles.yaml", "critic")
    actor = parse_megatron_role_args(base, "roles.yaml", "actor")
    ref = parse_megatron_role_args(base, "roles.yaml", "ref")
    assert (critic.lr, critic.clip_grad) == (1e-3, 1.0)
    assert (actor.lr, actor.clip_grad, actor.load) == (1e-4, 0.5, str(tmp_path / "ckpt"))
    assert vars(ref) == vars(base)
    assert args_of_role(base, "actor") is base  # it names no file
    words = ["--actor-num-gpus-per-node", "2", "--megatron-config-path", "roles.yaml"]
    with_file = parse_args(argv=[*argv, *words])
    assert args_of_role(with_file, "actor").clip_grad == 0.5
    assert base.lr == 1e-4
    critic.sglang_server_args["x"] = 1
    assert "x" not in base.sglang_server_args


def test_what_follows_from_an_override_is_derived_anew(argv: list[str], roles: Path) -> None:
    words = "--actor-num-gpus-per-node 4 --tensor-model-parallel-size 2 --bf16"
    words += " --make-vocab-size-divisible-by 16"
    base = parse_args(argv=[*argv, *words.split()])
    roles.write_text("megatron: [{role: ref, overrides: {tensor_model_parallel_size: 1}}]")
    ref = parse_megatron_role_args(base, "roles.yaml", "ref")
    assert (base.data_parallel_size, ref.data_parallel_size) == (2, 4)
    assert (base.expert_tensor_parallel_size, ref.expert_tensor_parallel_size) == (2, 1)
    assert (base.vocab_size, ref.vocab_size, ref.padded_vocab_size) == (128, 112, 112)
    roles.write_text("megatron: [{role: ref, overrides: {fp32: true}}]")
    ref = parse_megatron_role_args(base, "roles.yaml", "ref")
    assert (base.dtype, ref.dtype, ref.bf16) == ("bfloat16", "float32", False)


def test_the_plan_shows_the_ranks_of_each_role(argv: list[str], roles: Path) -> None:
    roles.write_text(FILE)
    words = "--advantage-estimator ppo --actor-num-gpus-per-node 2 --megatron-config-path"
    plan = build_plan(parse_args(argv=[*argv, *words.split(), str(roles)]))
    ranks = [process.role for process in plan.processes if " rank " in process.name]
    assert ranks == [
        "actor tp0 cp0 dp0 pp0, gloo, bfloat16",
        "actor tp0 cp0 dp1 pp0, gloo, bfloat16",
        "critic tp0 cp0 dp0 pp0, gloo, float32",
        "critic tp0 cp0 dp0 pp1, gloo, float32",
    ]


@pytest.mark.parametrize(
    ("text", "option", "message"),
    [
        ("[]", "--megatron-config-path", "holds no list of roles"),
        ("critic: {lr: 1}", "--megatron-config-path", "holds no list of roles"),
        ("megatron: [1]", "roles.yaml megatron[0]", "is no mapping"),
        ("megatron: [{role: teacher}]", "roles.yaml megatron[0].role", "no such role"),
        ("megatron: [{overrides: {}}]", "roles.yaml megatron[0].role", "no such role"),
        ("megatron: [{role: ref, override: {}}]", "roles.yaml megatron[0].override", "no such key"),
        ("megatron: [{role: ref}, {role: ref}]", "roles.yaml megatron[1].role", "twice"),
        (
            "megatron: [{role: ref, overrides: [lr]}]",
            "roles.yaml megatron[0].overrides",
            "is no mapping",
        ),
        (
            "megatron: [{role: critic, overrides: {lrr: 1}}]",
            "--megatron-config-path critic: roles.yaml megatron[0].overrides lrr",
            "no such option",
        ),
        (
            "megatron: [{role: critic, overrides: {lr: x}}]",
            "--megatron-config-path critic: roles.yaml megatron[0].overrides lr",
            "expected a number",
        ),
        (
            "megatron: [{role: critic, overrides: {rollout_batch_size: 3}}]",
            "--megatron-config-path critic: roles.yaml megatron[0].overrides rollout_batch_size",
            "is not for a role to say",
        ),
        (
            "megatron: [{role: critic, overrides: {clip_grad: -1}}]",
            "--megatron-config-path critic: --clip-grad",
            "at least 0",
        ),
        (
            "megatron: [{role: critic, overrides: {tensor_model_parallel_size: 2}}]",
            "--megatron-config-path critic: --actor-num-gpus-per-node",
            "1 ranks cannot be split into model replicas of 2",
        ),
    ],
)
def test_mistakes_are_refused_at_start_up(
    problems_of: Collect, roles: Path, text: str, option: str, message: str
) -> None:
    roles.write_text(text)
    (problem,) = problems_of("--megatron-config-path", "roles.yaml")
    assert (problem.option, message in problem.message) == (option, True), problem


def test_all_mistakes_come_at_once(problems_of: Collect, roles: Path) -> None:
    roles.write_text(
        "megatron: [{role: ref, overrides: {lrr: 1, clip_grad: x}}, {role: critic, overrides: "
        "{pipeline_model_parallel_size: 3}}]"
    )
    assert len(problems_of("--megatron-config-path", "roles.yaml")) == 4


def test_a_missing_file_and_an_unknown_role(argv: list[str], problems_of: Collect) -> None:
    (problem,) = problems_of("--megatron-config-path", "gone.yaml")
    assert problem.option == "--megatron-config-path" and "cannot be read" in problem.message
    with pytest.raises(ConfigError, match="no such role"):
        parse_megatron_role_args(parse_args(argv=argv), "roles.yaml", "teacher")
