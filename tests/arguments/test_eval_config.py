"""Evaluation data sets: every setting reaches every set, and nothing unknown passes."""

from argparse import Namespace
from pathlib import Path

import pytest

from slime.arguments.errors import ConfigError
from slime.arguments.eval_config import EvalDatasetConfig, build_eval_dataset_configs
from slime.arguments.parse import parse_args

ARGS = Namespace(
    rm_type="math",
    input_key="input",
    eval_input_key=None,
    label_key="label",
    eval_label_key="answer",
    rollout_temperature=1.0,
    eval_temperature=0.0,
    n_samples_per_eval_prompt=2,
    rollout_max_response_len=100,
    eval_max_response_len=None,
)


def test_defaults_reach_every_data_set_and_entries_win() -> None:
    entries = [
        {"name": "a", "path": "/a"},
        {"name": "b", "path": "/b", "rm_type": "gpqa", "top_p": 0.5},
    ]
    defaults = {"rm_type": "dapo", "repetition_penalty": 1.1, "n_samples_per_eval_prompt": 4}
    a, b = build_eval_dataset_configs(ARGS, entries, defaults)
    assert (a.rm_type, b.rm_type) == ("dapo", "gpqa")
    assert a.repetition_penalty == b.repetition_penalty == 1.1
    assert a.n_samples_per_eval_prompt == 4
    assert (a.top_p, b.top_p) == (None, 0.5)


def test_what_nobody_says_comes_from_the_arguments() -> None:
    (a,) = build_eval_dataset_configs(ARGS, [{"name": "a", "path": "/a"}], {})
    assert (a.rm_type, a.input_key, a.label_key) == ("math", "input", "answer")
    assert a.temperature == 0.0  # 0 is a value, not a missing one
    assert a.max_response_len == 100


def test_every_mistake_is_listed() -> None:
    entries = [{"name": "a", "path": "/a", "temprature": 1}, {"name": "a"}, "b"]
    with pytest.raises(ConfigError) as caught:
        build_eval_dataset_configs(ARGS, entries, {"rm_typ": "math"})  # type: ignore[list-item]
    options = [problem.option for problem in caught.value.problems]
    assert options == [
        "--eval-config defaults.rm_typ",
        "--eval-config datasets[0].temprature",
        "--eval-config datasets[1].path",
        "--eval-config datasets[1].name",
        "--eval-config datasets[2]",
    ]
    assert caught.value.problems[1].remedy == "did you mean temperature?"


def test_metadata_is_laid_over_a_copy() -> None:
    config = EvalDatasetConfig("a", "/a", metadata_overrides={"x": 1})
    original = {"x": 0, "y": 2}
    assert config.inject_metadata(original) == {"x": 1, "y": 2}
    assert original == {"x": 0, "y": 2}
    assert config.inject_metadata(None) == {"x": 1}


def test_the_cache_key_is_about_the_prompts_only() -> None:
    config = EvalDatasetConfig("a", "/a", multimodal_keys={"image": "i"})
    same = EvalDatasetConfig("a", "/a", multimodal_keys={"image": "i"}, temperature=0.5)
    other = EvalDatasetConfig("a", "/a", multimodal_keys={"image": "j"})
    assert hash(config.cache_key) == hash(same.cache_key)
    assert config.cache_key == same.cache_key != other.cache_key


def test_pairs_on_the_command_line(argv: list[str], prompts: Path) -> None:
    args = parse_args(argv=[*argv, "--eval-prompt-data", "x", "train.jsonl", "y", str(prompts)])
    assert [(d.name, d.path) for d in args.eval_datasets] == [
        ("x", str(prompts)),
        ("y", str(prompts)),
    ]
    args = parse_args(argv=[*argv, "--eval-prompt-data", "train.jsonl@[0:2]"])
    assert [(d.name, d.path) for d in args.eval_datasets] == [("train", f"{prompts}@[0:2]")]


def test_a_file_of_data_sets(argv: list[str], prompts: Path, tmp_path: Path) -> None:
    text = (
        "eval:\n  defaults: {temperature: 0.5}\n  datasets:\n    - {name: x, path: train.jsonl}\n"
    )
    (tmp_path / "eval.yaml").write_text(text)
    args = parse_args(argv=[*argv, "--eval-config", "eval.yaml"])
    (dataset,) = args.eval_datasets
    assert (dataset.path, dataset.temperature, dataset.rm_type) == (str(prompts), 0.5, "math")


@pytest.mark.parametrize("text", ["eval: {datasets: 3}", "- 1", "eval: [", "{}"])
def test_a_file_of_another_form_is_refused(argv: list[str], tmp_path: Path, text: str) -> None:
    (tmp_path / "eval.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        parse_args(argv=[*argv, "--eval-config", "eval.yaml"])
    assert [problem.option for problem in caught.value.problems] == ["--eval-config"]
