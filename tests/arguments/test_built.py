"""What nothing acts on is refused; what something acts on is not."""

from pathlib import Path

import pytest

from slime.arguments.check_built import NOT_BUILT, check_built
from slime.arguments.parse import parse_args
from slime.arguments.registry import all_flags


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("", []),
        ("--use-tis", []),
        ("--num-critic-only-steps 0", []),  # the default, given
        (
            "--use-distributed-post --allgather-cp",
            ["--allgather-cp", "--use-distributed-post"],
        ),
        ("--rollout-top-p 0.9", ["--rollout-top-p"]),
        ("--rollout-top-p 0.9 --debug-rollout-only", []),
        ("--rollout-data-transport nixl", ["--rollout-data-transport"]),
        ("--rollout-data-transport object-store", []),
        ("--async-save", []),
        ("--async-save --use-persistent-ckpt-worker", ["--use-persistent-ckpt-worker"]),
    ],
)
def test_refused(words: str, refused: list[str], argv: list[str]) -> None:
    args = parse_args(argv=[*argv, *words.split()])
    assert sorted(problem.option for problem in check_built(args)) == refused


def test_a_function_of_ones_own_may_say_which_tokens_were_kept(argv: list[str]) -> None:
    args = parse_args(argv=[*argv, "--rollout-top-p", "0.9"])
    args.custom_generate_function_path = "mine.generate"
    assert list(check_built(args)) == []


def test_engines_ignore_that_layers_have_no_experts(argv: list[str]) -> None:
    args = parse_args(argv=argv)
    args.hf_architecture = {"model_type": "qwen3_moe", "mlp_only_layers": [0]}
    assert "engines ignore" in " ".join(problem.message for problem in check_built(args))
    args.debug_train_only = True
    assert "engines ignore" not in " ".join(problem.message for problem in check_built(args))
    args.debug_train_only = False
    args.hf_architecture["mlp_only_layers"] = []
    assert "engines ignore" not in " ".join(problem.message for problem in check_built(args))


@pytest.mark.parametrize(
    ("more", "words", "refused"),
    [
        ("", "", ["evaluation data a: min_eval_samples", "evaluation data b: min_eval_samples"]),
        (", custom_rm_path: mine.grade", "", ["evaluation data b: min_eval_samples"]),
        ("", "--eval-function-path mine.evaluate", []),
    ],
)
def test_settings_of_evaluation_sets(
    more: str,
    words: str,
    refused: list[str],
    argv: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "mine.py").write_text(
        "def grade(args, sample): ...\ndef evaluate(args, id, source, evaluation): ..."
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "eval.yaml").write_text(
        "defaults: {min_eval_samples: 3}\n"
        "datasets:\n"
        f"  - {{name: a, path: train.jsonl{more}}}\n"
        "  - {name: b, path: train.jsonl}\n"
    )
    args = parse_args(argv=[*argv, "--eval-config", "eval.yaml", *words.split()])
    assert [problem.option for problem in check_built(args)] == refused


def test_the_list_names_options_that_exist() -> None:
    assert set(NOT_BUILT) <= {flag.dest for flag in all_flags()}
