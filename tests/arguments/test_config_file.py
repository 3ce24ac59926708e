"""YAML files: forms, the environment, and every mistake with its line."""

from pathlib import Path

import pytest

from slime.arguments.config_file import Entry, read_config

GROUPS = frozenset({"rollout", "optimizer"})


def read(tmp_path: Path, text: str, **environment: str) -> tuple[dict[str, object], list[str]]:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    entries, problems = read_config(file, "run.yaml", GROUPS, environment)
    return {entry.key: entry.value for entry in entries}, [str(problem) for problem in problems]


def test_flat_and_nested_keys_with_either_dash(tmp_path: Path) -> None:
    text = "lr: 1.0\nrollout:\n  rollout-batch-size: 4\n  rollout_stop: [a, b]\noptimizer:\n"
    entries, problems = read(tmp_path, text)
    assert entries == {"lr": 1.0, "rollout_batch_size": 4, "rollout_stop": ["a", "b"]}
    assert problems == []


def test_an_entry_knows_its_line_and_group(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("# a comment\nrollout:\n  rollout_batch_size: 4\n")
    entries, _ = read_config(file, "run.yaml", GROUPS, {})
    assert entries == [Entry("rollout_batch_size", 4, "run.yaml:3", "rollout")]


def test_a_name_of_a_group_may_be_an_option_too(tmp_path: Path) -> None:
    entries, _ = read(tmp_path, "optimizer: adam\n")
    assert entries == {"optimizer": "adam"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("seed: ${env:SEED}", "3"),
        ("seed: ${env:NONE:5}", "5"),
        ("seed: ${env:NONE:}", None),
        ("seed: /data/${env:USER}/${env:SEED}", "/data/me/3"),
        ("seed: [1, '${env:USER}']", [1, "me"]),
        ("seed:\n- ${env:SEED}", [3]),
        ("seed:\n- '${env:SEED}'", ["3"]),
        ("seed: $HOME", "$HOME"),
        ("seed: ${SEED}", "${SEED}"),
    ],
)
def test_the_environment_is_explicit(tmp_path: Path, text: str, value: object) -> None:
    entries, problems = read(tmp_path, text, SEED="3", USER="me", HOME="/root")
    assert entries == {"seed": value}
    assert problems == []


def test_every_unset_variable_is_named_with_its_line(tmp_path: Path) -> None:
    entries, problems = read(tmp_path, "a: ${env:X}\nb: 1\nc:\n  d: ${env:Y}\n")
    assert entries == {"b": 1}
    assert [problem.split(":")[1].split(" ")[0] for problem in problems] == ["1", "4"]
    assert "the environment variable X is not set" in problems[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "run.yaml:3"),
        ("- a\n- b\n", "run.yaml:1: a configuration is a mapping"),
        ("just text", "run.yaml:1: a configuration is a mapping"),
        ("x:\n  y: 1\n  y: 2\n", "run.yaml:3: y is given twice, first at run.yaml:2"),
    ],
)
def test_wrong_syntax_is_named_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    _, problems = read(tmp_path, text)
    assert len(problems) == 1
    assert expected in problems[0]


def test_a_missing_file_and_a_binary_file_are_problems(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("none.yaml", "binary", "."):
        entries, problems = read_config(tmp_path / name, name, GROUPS, {})
        assert entries == []
        assert problems[0].option == "--config"
        assert problems[0].value == name


def test_a_control_character_is_a_problem(tmp_path: Path) -> None:
    _, (problem,) = read(tmp_path, "lr: \x00")
    assert "not valid YAML" in problem


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "# nothing\n") == ({}, [])


def test_an_alias_that_contains_itself_is_refused(tmp_path: Path) -> None:
    _, (problem,) = read(tmp_path, "a: &x [1, *x]\n")
    assert "run.yaml:1: not valid YAML" in problem


def test_aliases_cannot_blow_a_file_up(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    _, problems = read(tmp_path, "\n".join(lines))
    assert len(problems) == 1
    assert "aliases" in problems[0]


def test_a_few_aliases_are_fine(tmp_path: Path) -> None:
    entries, problems = read(tmp_path, "lr: &lr 0.1\nmin_lr: *lr\n")
    assert (entries, problems) == ({"lr": 0.1, "min_lr": 0.1}, [])
