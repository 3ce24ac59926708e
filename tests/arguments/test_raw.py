"""Files and the command line together: who wins, what is converted, what is refused."""

import argparse
from pathlib import Path

import pytest

from slime.arguments.errors import Problem
from slime.arguments.raw import RawArguments, read_raw


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def read(*words: str, **environment: str) -> tuple[RawArguments, list[Problem]]:
    return read_raw(words, environment=environment)


def test_later_files_and_the_command_line_win(tmp_path: Path) -> None:
    first = write(tmp_path / "a.yaml", "lr: 1.0\nseed: 1\nnum_rollout: 1\n")
    second = write(tmp_path / "b.yaml", "optimizer: {lr: 2.0, seed: 2}\n")
    raw, problems = read("--seed", "3", "--config", first, f"--config={second}")
    assert problems == []
    assert (raw.values["num_rollout"], raw.values["lr"], raw.values["seed"]) == (1, 2.0, 3)
    assert raw.origins["lr"] == f"{second}:1"
    assert raw.origins["seed"] == "command line"
    assert not raw.given("min_lr")


@pytest.mark.parametrize(
    ("text", "dest", "value"),
    [
        ("colocate: true", "colocate", True),
        ("offload_train: false", "offload_train", False),
        ("grpo_std_normalization: false", "grpo_std_normalization", False),
        ("disable_grpo_std_normalization: true", "grpo_std_normalization", False),
        ("disable-grpo-std-normalization: false", "grpo_std_normalization", True),
        ("lr: 1e-4", "lr", 1e-4),
        ("lr: 1", "lr", 1.0),
        ("update_weight_buffer_size: 1.0e6", "update_weight_buffer_size", 1000000),
        ("rollout_stop: end", "rollout_stop", ["end"]),
        ("rollout_stop_token_ids: [1, 2]", "rollout_stop_token_ids", [1, 2]),
        ("multimodal_keys: {image: images}", "multimodal_keys", {"image": "images"}),
        ('multimodal_keys: \'{"image": "images"}\'', "multimodal_keys", {"image": "images"}),
        ("moe_layer_freq: '[0]*1+[1]*3'", "moe_layer_freq", [0, 1, 1, 1]),
        ("moe_layer_freq: 2", "moe_layer_freq", 2),
        ("eps_clip_high: null", "eps_clip_high", None),
    ],
)
def test_values_of_a_file(tmp_path: Path, text: str, dest: str, value: object) -> None:
    raw, problems = read("--config", write(tmp_path / "a.yaml", text))
    assert problems == []
    assert raw.values[dest] == value
    assert type(raw.values[dest]) is type(value)


@pytest.mark.parametrize(
    ("text", "dest", "value"),
    [
        ("seed: ${env:NUMBER}", "seed", 12),
        ("seed: '${env:NUMBER}'", "seed", 12),
        ("lr: ${env:NUMBER}", "lr", 12.0),
        ("wandb_group: ${env:NUMBER}", "wandb_group", "12"),
        ("wandb_group: run-${env:NUMBER}", "wandb_group", "run-12"),
        ("colocate: ${env:YES}", "colocate", True),
        ("rollout_stop: ${env:YES}", "rollout_stop", ["true"]),
        ("eps_clip_high: ${env:NONE:}", "eps_clip_high", None),
        ("train_env_vars: '${env:JSON}'", "train_env_vars", {"A": "b"}),
        ("sglang: {x: '${env:NUMBER}'}", "sglang_server_args", {"x": 12}),
    ],
)
def test_a_value_of_the_environment_gets_the_type_of_its_option(
    tmp_path: Path, text: str, dest: str, value: object
) -> None:
    file = write(tmp_path / "a.yaml", text)
    raw, problems = read("--config", file, NUMBER="12", YES="true", JSON='{"A": "b"}')
    assert [problem for problem in problems if "no such option" not in problem.message] == []
    assert raw.values[dest] == value
    assert type(raw.values[dest]) is type(value)


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("rollout_batch_size: many", "expected an integer, got a text", ""),
        ("rollout_batch_size: 1.5", "expected an integer, got a number", ""),
        ("rollout_batch_size: true", "expected an integer, got true/false", ""),
        ("colocate: 1", "expected true or false, got an integer", ""),
        ("run_name: 5", "expected a text, got an integer", "put it in quotes"),
        ("wandb_group: no", "expected a text, got true/false", "put it in quotes"),
        ("loss_type: mse", "expected one of policy_loss, sft_loss, custom_loss, got a text", ""),
        ("rollout_stop_token_ids: [1, x]", "expected a list, each item an integer", ""),
        ("seed: null", "needs a value", "leave the line out for the default (1234)"),
        ("n_samples_per_promt: 4", "no such option", "did you mean n_samples_per_prompt?"),
        ("rolout: {lr: 1}", "no such option or group", "did you mean rollout?"),
        ("dry_run: true", "cannot stand in a file", "give --dry-run on the command line"),
        ("apply_chat_template_kwargs: '{'", "expected JSON", ""),
        ("moe_layer_freq: __import__('os')", "expected a number or a 0/1 list", ""),
    ],
)
def test_wrong_values_of_a_file(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    file = write(tmp_path / "a.yaml", "\n" + text)
    _, (problem,) = read("--config", file)
    assert problem.option.startswith(f"{file}:2 ")
    assert problem.message.startswith(message)
    assert problem.remedy == remedy


def test_one_option_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    text = "seed: 1\noptimizer:\n  seed: 2\ngrpo_std_normalization: true\n"
    file = write(tmp_path / "a.yaml", text + "disable_grpo_std_normalization: true\n")
    raw, problems = read("--config", file)
    assert [(problem.option, problem.value) for problem in problems] == [
        (f"{file}:3", "seed"),
        (f"{file}:5", "disable_grpo_std_normalization"),
    ]
    assert raw.values["seed"] == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--lr", "fast"], ("--lr", "fast", "expected a number")),
        (["--loss-type", "x"], ("--loss-type", "x", "expected one of policy_loss, sft_loss")),
        (["--rollout-batchsize", "4"], ("--rollout-batchsize", None, "no such option")),
        (["--lr"], ("command line", None, "argument --lr: expected one argument")),
        (["--colocate=yes"], ("command line", None, "argument --colocate: ignored explicit")),
        (["stray"], ("command line", "stray", "a value that belongs to no option")),
    ],
)
def test_wrong_words(words: list[str], expected: tuple[str, object, str]) -> None:
    _, (problem,) = read(*words)
    assert (problem.option, problem.value) == expected[:2]
    assert problem.message.startswith(expected[2])


def test_an_unknown_flag_gets_a_suggestion() -> None:
    _, (problem,) = read("--rollout-batchsize", "4")
    assert problem.remedy == "did you mean --rollout-batch-size?"


def test_every_mistake_is_found_at_once(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "seed: x\nfoo: 1\nlr: ${env:NOPE}\n")
    _, problems = read("--config", file, "--lr", "x", "--bar", "--config", "none.yaml")
    assert len(problems) == 6


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--colocate"], True),
        (["--colocate", "--no-colocate"], False),
        (["--no-colocate", "--colocate"], True),
    ],
)
def test_a_switch_can_be_turned_off_again(words: list[str], value: bool) -> None:
    raw, problems = read(*words)
    assert problems == []
    assert raw.values["colocate"] is value


def test_a_disabling_flag_can_be_turned_off_again(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "disable_grpo_std_normalization: true")
    raw, _ = read("--config", file, "--grpo-std-normalization")
    assert raw.values["grpo_std_normalization"] is True


def add_custom(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent-turns", type=int, default=4)
    parser.add_argument("--agent-tools", type=str, nargs="+", default=None)
    parser.add_argument("--agent-limit", type=float, default="0.5")


def test_custom_arguments_work_everywhere(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "agent_turns: 6\nagent-limit: '2'\n")
    words = ["--config", file, "--agent-tools", "python", "bash"]
    raw, problems = read_raw(words, add_custom, {})
    assert problems == []
    assert raw.values["agent_turns"] == 6
    assert raw.values["agent_tools"] == ["python", "bash"]
    assert raw.values["agent_limit"] == 2.0
    assert read_raw([], add_custom, {})[0].values["agent_limit"] == 0.5
    assert read_raw([], add_custom, {})[0].values["agent_turns"] == 4


def test_a_wrong_custom_value_in_a_file_is_a_problem(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "agent_turns: many\n")
    _, (problem,) = read_raw(["--config", file], add_custom, {})
    assert problem.option == f"{file}:1 agent_turns"


def test_config_paths_start_where_the_user_is(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    write(tmp_path / "user" / "a.yaml", "seed: 7")
    words = ["--config", "a.yaml"]
    raw, _ = read_raw(words, environment={"BUILD_WORKING_DIRECTORY": str(tmp_path / "user")})
    assert raw.values["seed"] == 7
