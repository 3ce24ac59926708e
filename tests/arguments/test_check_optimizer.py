"""What the optimizer's options need is asked for before anything starts."""

from collections.abc import Callable

import pytest

from slime.arguments import check_optimizer
from slime.arguments.errors import ConfigError, Problem
from slime.arguments.parse import parse_args

OFFLOAD = "--optimizer-cpu-offload --use-distributed-optimizer --use-precision-aware-optimizer"


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (f"{OFFLOAD} --bf16", {}),
        ("--use-stateless-adam --reset-optimizer-states", {}),
        (OFFLOAD, {"--optimizer-cpu-offload": "add --bf16"}),
        (
            "--optimizer-cpu-offload --bf16",
            {
                "--optimizer-cpu-offload": (
                    "add --use-distributed-optimizer --use-precision-aware-optimizer"
                )
            },
        ),
        (
            f"{OFFLOAD} --bf16 --optimizer-offload-fraction 1.5",
            {"--optimizer-offload-fraction": "at most 1"},
        ),
        (f"{OFFLOAD} --bf16 --use-stateless-adam", {"--optimizer-cpu-offload": "leave one"}),
        ("--exp-avg-dtype bf16", {"--exp-avg-dtype": "add --use-precision-aware-optimizer"}),
        (f"{OFFLOAD} --bf16 --exp-avg-dtype bf16", {"--exp-avg-dtype": "leave it out on a CPU"}),
        (
            "--use-precision-aware-optimizer --use-distributed-optimizer",
            {"--use-precision-aware-optimizer": "add --optimizer-cpu-offload"},
        ),
        (
            "--use-stateless-adam --optimizer sgd",
            {"--use-stateless-adam": "leave --optimizer out"},
        ),
    ],
)
def test_refused_with_a_remedy(
    words: str, refused: dict[str, str], problems_of: Callable[..., list[Problem]]
) -> None:
    found = {problem.option: problem.remedy for problem in problems_of(*words.split())}
    assert found.keys() == refused.keys()
    assert all(text in found[name] for name, text in refused.items())


@pytest.mark.parametrize("flag", ["--use-routing-replay", "--use-rollout-routing-replay"])
def test_a_dense_model_has_no_routes_to_replay(flag: str, argv: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_args(argv=[*argv, flag])
    assert [problem.option for problem in caught.value.problems] == [flag]


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("--memory-snapshot-num-steps 2", {"--memory-snapshot-num-steps": "recorder memray"}),
        ("--record-memory-history", {"--record-memory-history": "recorder memray"}),
        ("--record-memory-history --device cuda --rollout-num-gpus 1", {}),
        ("--record-memory-history --memory-recorder memray", {}),
        ("--memory-recorder memray", {"--memory-recorder": "add --memory-snapshot-num-steps or"}),
        (
            "--memory-snapshot-num-steps 0 --memory-recorder memray",
            {"--memory-snapshot-num-steps": "at least 1"},
        ),
    ],
)
def test_memory_is_recorded_where_it_is(
    words: str,
    refused: dict[str, str],
    problems_of: Callable[..., list[Problem]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_optimizer, "find_spec", lambda name: name)
    found = {problem.option: problem.remedy for problem in problems_of(*words.split())}
    assert found.keys() == refused.keys()
    assert all(text in found[name] for name, text in refused.items())


def test_memray_is_installed_before_a_run_starts(
    problems_of: Callable[..., list[Problem]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_optimizer, "find_spec", lambda name: None)
    words = "--memory-snapshot-num-steps 2 --memory-recorder memray"
    (problem,) = problems_of(*words.split())
    assert problem.option == "--memory-recorder" and "is not installed" in problem.message


def test_a_released_trainer_keeps_nothing_but_its_checkpoint(argv: list[str]) -> None:
    parse_args(argv=[*argv, "--release-train"])
    with pytest.raises(ConfigError, match="does not go together with --no-save-optim"):
        parse_args(argv=[*argv, "--release-train", "--no-save-optim"])
