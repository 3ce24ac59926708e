"""The plan: coordinates of ranks, numbers that follow, estimates, and its text."""

import os

import pytest

from slime.arguments.estimate import count_parameters, engine_gib, train_rank_gib
from slime.arguments.parse import parse_args
from slime.arguments.plan import build_plan, rank_coordinates, render

RUNS_ALREADY = (
    "--rollout-external-engine-addrs h:1 --sglang-router-ip h --sglang-router-port 2 "
    "--ray-address ray://h"
)


def test_ranks_are_numbered_as_megatron_numbers_them(argv: list[str]) -> None:
    words = "--actor-num-gpus-per-node 8 --tensor-model-parallel-size 2"
    words += " --pipeline-model-parallel-size 2"
    args = parse_args(argv=[*argv, *words.split()])
    # parallel_state's groups for tp2 x dp2 x pp2: tensor [0,1] [2,3] ..., data [0,2] [1,3] ...,
    # pipeline [0,4] ...
    coordinates = [rank_coordinates(args, rank) for rank in range(8)]
    groups = {
        axis: sorted(
            [
                r
                for r in range(8)
                if coordinates[r] == {**coordinates[s], axis: coordinates[r][axis]}
            ]
            for s in range(8)
            if coordinates[s][axis] == 0
        )
        for axis in ("tp", "dp", "pp")
    }
    assert groups["tp"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups["dp"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups["pp"] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (
            "",
            ["Ray", "train rank 0", "rollout manager", "router", "engine 0"],
        ),
        (
            "--actor-num-gpus-per-node 2 --rollout-num-gpus 2",
            [
                "Ray",
                "train rank 0",
                "train rank 1",
                "rollout manager",
                "router",
                "engine 0",
                "engine 1",
            ],
        ),
        ("--debug-rollout-only", ["Ray", "rollout manager", "router", "engine 0"]),
        (
            RUNS_ALREADY,
            ["Ray", "train rank 0", "rollout manager", "router", "engine 0"],
        ),
    ],
)
def test_processes(argv: list[str], words: str, names: list[str]) -> None:
    plan = build_plan(parse_args(argv=[*argv, *words.split()]))
    assert [process.name for process in plan.processes] == names


def test_what_runs_already_is_not_started(argv: list[str]) -> None:
    plan = build_plan(parse_args(argv=[*argv, *RUNS_ALREADY.split()]))
    joined = [process.name for process in plan.processes if "not started" in process.role]
    assert joined == ["Ray", "router", "engine 0"]


def test_numbers(argv: list[str]) -> None:
    words = "--num-steps-per-rollout 2 --use-dynamic-batch-size --max-tokens-per-gpu 100"
    words += " --rollout-max-prompt-len 20 --eval-prompt-data a train.jsonl --eval-interval 20"
    numbers = build_plan(parse_args(argv=[*argv, *words.split()])).numbers
    expected = {
        "samples per rollout": 128,
        "samples per step": 64,
        "steps per rollout": 2,
        "optimizer steps": 120,
        "longest sequence (tokens)": 32,
        "most tokens per rollout": 128 * 32,
        "most new tokens per rollout": 128 * 12,
        "micro-batch bound (tokens)": 100,
        "evaluations": 4,
        "evaluation sets": "a",
    }
    assert {name: numbers[name] for name in expected} == expected


def test_more_threads_than_cores_are_a_warning(argv: list[str]) -> None:
    plan = build_plan(
        parse_args(argv=[*argv, "--actor-num-gpus-per-node", "4", "--train-threads", "64"])
    )
    (warning,) = plan.warnings
    cores = len(os.sched_getaffinity(0))
    assert warning.startswith(f"4 train ranks with 64 threads each share {cores} cores")
    assert warning in render(plan)
    assert build_plan(parse_args(argv=[*argv, "--train-threads", "1"])).warnings == ()


def test_the_text_shows_everything(argv: list[str]) -> None:
    plan = build_plan(
        parse_args(argv=[*argv, "--run-dir", "/tmp/some-run", "--sglang-log-level", "info"])
    )
    text = render(plan)
    for part in ("/tmp/some-run", "cpu", "train rank 0", "tp0 cp0 dp0 pp0", "free loopback port"):
        assert part in text
    assert "log_level" in text
    assert all(process.name in text for process in plan.processes)
    assert all(name in text for name in plan.numbers)


def test_parameters_are_counted_as_transformers_counts_them(argv: list[str]) -> None:
    # sum(p.numel() for p in Qwen3ForCausalLM(config).parameters()) with the config of conftest.py
    assert count_parameters(parse_args(argv=argv)) == 406_784


def test_memory_follows_the_layout_and_the_precision(argv: list[str]) -> None:
    words = [*argv, "--device", "cuda", "--colocate"]
    gib = 1024**3
    whole = parse_args(argv=[*words, "--fp32", "--actor-num-gpus-per-node", "2"])
    parameters = count_parameters(whole)
    assert train_rank_gib(whole) * gib == pytest.approx(16 * parameters)
    half = parse_args(argv=[*words, "--actor-num-gpus-per-node", "2"])
    assert train_rank_gib(half) * gib == pytest.approx(18 * count_parameters(half))
    sharded = [*words, "--actor-num-gpus-per-node", "2", "--use-distributed-optimizer"]
    args = parse_args(argv=sharded)
    assert train_rank_gib(args) * gib == pytest.approx(12 * count_parameters(args))
    split = [
        *words,
        "--actor-num-gpus-per-node",
        "2",
        "--tensor-model-parallel-size",
        "2",
        "--fp32",
    ]
    args = parse_args(argv=split)
    assert train_rank_gib(args) * gib == pytest.approx(8 * count_parameters(args))


def test_the_cache_of_an_engine_counts(argv: list[str]) -> None:
    words = [*argv, "--device", "cuda", "--colocate", "--sglang-max-total-tokens", "1000"]
    args = parse_args(argv=words)
    cache = 2 * 2 * 2 * 32 * 2 * 1000  # keys and values x layers x heads x width x bytes x tokens
    assert engine_gib(args) * 1024**3 == pytest.approx(2 * count_parameters(args) + cache)
