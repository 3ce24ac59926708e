"""Options that would do nothing, or that no run could work with, are refused by name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.check_rollout import FORGED, FULLY_ASYNC
from slime.arguments.errors import Problem

Collect = Callable[..., list[Problem]]
DELTA = "--update-weight-mode delta --update-weight-transport disk"


@pytest.mark.parametrize(
    ("words", "companion"),
    [
        ("--opd-kl-coef 0.5", "--use-opd"),
        ("--opd-teacher-ckpt-step 3", "--opd-teacher-load teacher"),
        ("--ckpt-step 3", "--load folder"),
        ("--use-previous-checkpoint", "--load folder"),
        ("--ref-ckpt-step 3", ""),
        ("--tis-clip 3", "--use-tis"),
        ("--tis-clip-low 0.5", "--use-tis"),
        ("--opsm-delta 0.1", "--use-opsm"),
        ("--optimizer-offload-fraction 0.5", "--optimizer-cpu-offload"),
        ("--update-weight-disk-dir files", "--update-weight-transport disk"),
        ("--update-weight-local-checkpoint-dir files", DELTA),
        ("--update-weight-delta-encoding overwrite", DELTA),
        ("--update-weight-delta-checksum adler32", DELTA),
        ("--max-weight-lag 5", f"--rollout-function-path {FULLY_ASYNC}"),
        ("--load-forge-rollout-data load.json", f"--rollout-function-path {FORGED}"),
        ("--load-debug-rollout-data-subsample 0.5", ""),
    ],
)
def test_an_option_without_its_companion(problems_of: Collect, words: str, companion: str) -> None:
    option = words.split()[0]
    (problem,) = problems_of(*words.split())
    assert (problem.option, problem.message) == (option, "has no effect")
    assert problem.remedy.startswith("add --")
    if companion:
        both = problems_of(*words.split(), *companion.split())
        assert option not in [found.option for found in both]


def test_a_default_that_is_spelled_out_is_let_pass(problems_of: Collect) -> None:
    assert problems_of("--tis-clip", "2.0", "--max-weight-lag", "2") == []


@pytest.mark.parametrize(
    ("words", "option", "message"),
    [
        ("--sglang-router-ip h", "--sglang-router-port", "needed with"),
        ("--sglang-router-port 99999", "--sglang-router-port", "is no port"),
        ("--rollout-external-engine-addrs h", "--rollout-external-engine-addrs", "no address"),
        ("--rollout-external-engine-addrs h:0", "--rollout-external-engine-addrs", "no address"),
        ("--rollout-external-engine-addrs ftp://h:1", "--rollout-external-engine-addrs", "address"),
        ("--rollout-external-engine-addrs h:1 h:1", "--rollout-external-engine-addrs", "twice"),
        ("--use-opd --opd-type sglang", "--opd-type", "nobody asks the teacher"),
        (
            "--advantage-estimator ppo --num-critic-only-steps 60",
            "--num-critic-only-steps",
            "the actor would never train",
        ),
        ("--num-experts 8", "--moe-ffn-hidden-size", "needed with --num-experts 8"),
        ("--start-rollout-id 60", "--start-rollout-id", "nothing is left to do"),
        (
            f"{DELTA} --update-weight-disk-dir x --update-weight-local-checkpoint-dir x",
            "--update-weight-local-checkpoint-dir",
            "is --update-weight-disk-dir too",
        ),
        (
            "--update-weight-transport disk --update-weight-disk-dir /dev/null",
            "--update-weight-disk-dir",
            "is not a directory",
        ),
        ("--entropy-coef nan", "--entropy-coef", "finite"),
        ("--lr inf", "--lr", "finite"),
        ("--lr-warmup-fraction nan", "--lr-warmup-fraction", "between 0 and 1"),
        ("--adam-eps nan", "--adam-eps", "at least 0"),
        (
            "--opd-kl-coef nan --use-opd --opd-type megatron --opd-teacher-load model",
            "--opd-kl-coef",
            "finite",
        ),
        ("--train-stall-timeout inf", "--train-stall-timeout", "finite"),
        ("--log-probs-chunk-size 0", "--log-probs-chunk-size", "at least 1"),
        ("--rollout-health-check-timeout 0", "--rollout-health-check-timeout", "above 0"),
        ("--rollout-health-check-interval -1", "--rollout-health-check-interval", "above 0"),
    ],
)
def test_what_cannot_work(problems_of: Collect, words: str, option: str, message: str) -> None:
    (problem,) = problems_of(*words.split())
    assert problem.option == option
    assert message in problem.message


def test_an_infinite_fraction_is_refused(problems_of: Collect) -> None:
    problems = problems_of("--lr-warmup-fraction", "1e400")
    assert {problem.option for problem in problems} == {"--lr-warmup-fraction"}


@pytest.mark.parametrize(
    "words",
    [
        "--rollout-external-engine-addrs h:1 http://10.0.0.1:2 [::1]:3",
        "--sglang-router-ip h --sglang-router-port 3000",
        "--tis-clip inf --use-tis",
        "--use-opd --opd-type sglang --rm-url http://h:1/generate --custom-rm-path "
        "slime.rollout.on_policy_distillation.reward_func",
        "--advantage-estimator ppo --num-critic-only-steps 59 --start-rollout-id 59",
    ],
)
def test_what_works_is_let_pass(problems_of: Collect, words: str) -> None:
    assert not [p for p in problems_of(*words.split()) if "cannot be imported" not in p.message]


def test_a_role_is_checked_like_the_run(problems_of: Collect, tmp_path: Path) -> None:
    overrides = "{optimizer: sgd, use_stateless_adam: true, min_lr: 1}"
    text = f"megatron: [{{role: critic, overrides: {overrides}}}]"
    (tmp_path / "roles.yaml").write_text(text)
    words = "--advantage-estimator ppo --megatron-config-path roles.yaml"
    options = {problem.option for problem in problems_of(*words.split())}
    place = "--megatron-config-path critic: "
    assert options == {f"{place}--use-stateless-adam", f"{place}--min-lr"}


@pytest.mark.parametrize("kind", ["placeholder", "encoder"])
def test_a_model_needs_engines_that_generate(
    problems_of: Collect, tmp_path: Path, kind: str
) -> None:
    groups = f"[{{worker_type: {kind}, num_gpus: 1}}]"
    (tmp_path / "engines.yaml").write_text(f"sglang: [{{name: m, server_groups: {groups}}}]")
    (problem,) = problems_of("--sglang-config", "engines.yaml")
    assert problem.message == f"has only {kind} groups: nothing generates"
