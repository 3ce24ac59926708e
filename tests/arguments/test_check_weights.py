"""Ways of sending weights that do not go together are refused."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.errors import Problem
from slime.arguments.parse import parse_args

Collect = Callable[..., list[Problem]]


@pytest.mark.parametrize(
    ("words", "option", "message"),
    [
        ("--update-weight-mode delta", "--update-weight-mode", "a delta is a file"),
        (
            "--custom-update-weight-post-write-path os.path.join",
            "--custom-update-weight-post-write-path",
            "none are",
        ),
        (
            "--check-weight-update-equal --sglang-ep-size 2",
            "--check-weight-update-equal",
            "cannot follow ep_size 2",
        ),
        (
            "--check-weight-update-equal --rollout-num-gpus 4 --rollout-num-gpus-per-engine 4",
            "--check-weight-update-equal",
            "fill 2 key/value heads up for 4 ranks",
        ),
    ],
)
def test_refused(problems_of: Collect, words: str, option: str, message: str) -> None:
    (problem,) = [p for p in problems_of(*words.split()) if p.option == option]
    assert message in problem.message


@pytest.mark.parametrize(
    "words",
    ["--rollout-num-gpus 2 --rollout-num-gpus-per-engine 2", "--device cuda --rollout-num-gpus 1"],
)
def test_divided_engines_and_gpus_can_be_compared(problems_of: Collect, words: str) -> None:
    problems = problems_of("--check-weight-update-equal", *words.split())
    assert [p for p in problems if p.option == "--check-weight-update-equal"] == []


def test_a_checksum_needs_its_package(problems_of: Collect) -> None:
    words = "--update-weight-mode delta --update-weight-transport disk"
    problems = problems_of(*words.split(), "--update-weight-delta-checksum", "blake3")
    assert len(problems) == (importlib.util.find_spec("blake3") is None)
    assert problems_of(*words.split()) == []


def test_folders_of_the_transports_lie_in_the_run_unless_given(
    argv: list[str], tmp_path: Path
) -> None:
    words = "--update-weight-mode delta --update-weight-transport disk --run-dir runs/r"
    args = parse_args(argv=[*argv, *words.split()])
    assert args.update_weight_disk_dir == f"{args.run_dir}/weights"
    assert args.update_weight_local_checkpoint_dir == f"{args.run_dir}/weights_local"
    words = f"--update-weight-transport disk --update-weight-disk-dir {tmp_path}"
    args = parse_args(argv=[*argv, *words.split()])
    assert args.update_weight_disk_dir == str(tmp_path)
    assert args.update_weight_local_checkpoint_dir is None
