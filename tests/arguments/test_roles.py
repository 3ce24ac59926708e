"""Settings per role."""

from pathlib import Path

import pytest

from slime.arguments.errors import ConfigError
from slime.arguments.parse import parse_args, parse_megatron_role_args


def test_a_role_gets_its_own_settings(argv: list[str], tmp_path: Path) -> None:
    base = parse_args(argv=argv)
    text = "critic:\n  lr: 1e-3\n  optimizer: {}\nactor:\n  clip_grad: 0.5\n  load: ckpt\n"
    (tmp_path / "roles.yaml").write_text(text.replace("  optimizer: {}\n", ""))
    critic = parse_megatron_role_args(base, "roles.yaml", "critic")
    actor = parse_megatron_role_args(base, "roles.yaml", "actor")
    ref = parse_megatron_role_args(base, "roles.yaml", "ref")
    assert (critic.lr, critic.clip_grad) == (1e-3, 1.0)
    assert (actor.lr, actor.clip_grad, actor.load) == (1e-4, 0.5, str(tmp_path / "ckpt"))
    assert vars(ref) == vars(base)
    assert base.lr == 1e-4
    critic.sglang_server_args["x"] = 1
    assert "x" not in base.sglang_server_args


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("critic: {lrr: 1}", "roles.yaml:1 lrr"),
        ("critic: {lr: x}", "roles.yaml:1 lr"),
        ("lr: 1", "roles.yaml:1 lr"),
        ("teacher: {lr: 1}", "roles.yaml:1 teacher"),
    ],
)
def test_mistakes_are_refused_at_start_up(
    argv: list[str], tmp_path: Path, text: str, option: str
) -> None:
    (tmp_path / "roles.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        parse_args(argv=[*argv, "--megatron-config-path", "roles.yaml"])
    (problem,) = caught.value.problems
    assert problem.option.endswith(option)


def test_an_unknown_role_is_refused(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match="no such role"):
        parse_megatron_role_args(parse_args(argv=argv), "roles.yaml", "teacher")
