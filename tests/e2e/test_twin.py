"""A twin is the GPU test made small: nothing is lost in silence, and proportions stay."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.e2e.reward import grade
from tests.e2e.twin import DEVICE_ONLY, LAYOUT, parse, small_engines, twin_of

DATA = Path("data")
ROLLOUT = ["--prompt-data", "p", "--rm-type", "math", "--num-rollout", "3000"]
ROLLOUT += ["--rollout-batch-size", "32", "--n-samples-per-prompt", "8"]
ROLLOUT += ["--global-batch-size", "128"]


def test_options_of_both_spellings_are_read() -> None:
    assert parse(["--a", "1", "2", "--b=3", "--c", "--a=4"]) == {
        "--a": ["4"],
        "--b": ["3"],
        "--c": [],
    }
    with pytest.raises(ValueError, match="'x' stands before"):
        parse(["x", "--a"])


def test_what_is_for_gpus_only_goes_and_is_said() -> None:
    words = ["--colocate", "--sglang-mem-fraction-static", "0.7", "--lr", "1e-6"]
    twin = twin_of(words, DATA)
    assert twin.words == ["--lr", "1e-6"]
    assert sorted(line.partition(":")[0] for line in twin.left_out) == [
        "--colocate",
        "--sglang-mem-fraction-static 0.7",
    ]
    assert all(line in twin.report for line in twin.left_out)


def test_optimizer_steps_per_rollout_stay() -> None:
    small = twin_of(ROLLOUT, DATA).options
    assert int(small["--rollout-batch-size"][0]) * int(small["--n-samples-per-prompt"][0]) == 16
    assert small["--global-batch-size"] == ["8"]  # 256 / 128 = 16 / 8 steps
    assert small["--num-rollout"] == ["3"]


def test_the_tiny_prompts_come_with_their_keys_and_reward() -> None:
    options = twin_of([*ROLLOUT, "--eval-prompt-data", "aime", "a.jsonl"], DATA).options
    assert options["--prompt-data"] == ["data/train.jsonl"]
    assert options["--eval-prompt-data"] == ["aime", "data/eval.jsonl@[0:16]"]
    assert options["--custom-rm-path"] == ["tests.e2e.reward.score"]
    assert "--rm-type" not in options


@pytest.mark.parametrize(
    ("sizes", "ranks", "left"),
    [
        ({}, 2, {}),
        ({"--tensor-model-parallel-size": 4}, 1, {"--tensor-model-parallel-size": 1}),
        ({"--tensor-model-parallel-size": 4}, 2, {"--tensor-model-parallel-size": 2}),
        (
            {"--tensor-model-parallel-size": 1, "--context-parallel-size": 8},
            2,
            {"--tensor-model-parallel-size": 1, "--context-parallel-size": 2},
        ),
        (
            {"--tensor-model-parallel-size": 2, "--context-parallel-size": 2},
            2,
            {"--tensor-model-parallel-size": 2, "--context-parallel-size": 1},
        ),
    ],
)
def test_two_ranks_keep_one_kind_of_parallelism(sizes, ranks: int, left) -> None:
    words = [word for flag, size in sizes.items() for word in (flag, f"{size}")]
    options = twin_of([*words, "--actor-num-gpus-per-node", "8"], DATA, ranks=ranks).options
    assert {flag: int(options[flag][0]) for flag in left} == left
    assert options["--actor-num-gpus-per-node"] == [f"{ranks}"]


def test_sequence_parallelism_needs_tensor_parallelism() -> None:
    words = ["--tensor-model-parallel-size", "2", "--sequence-parallel"]
    assert "--sequence-parallel" in twin_of(words, DATA, ranks=2).options
    twin = twin_of(words, DATA, ranks=1)
    assert "--sequence-parallel" not in twin.options
    assert twin.left_out == ["--sequence-parallel: one tensor-parallel rank"]


@given(st.lists(st.sampled_from([*LAYOUT, *DEVICE_ONLY, "--lr", "--seed"]), unique=True))
def test_every_option_is_kept_or_named(flags: list[str]) -> None:
    words = [word for flag in flags for word in (flag.replace("*", "x"), "2")]
    twin = twin_of(words, DATA)
    named = " ".join(twin.left_out)
    for flag, (value,) in parse(words).items():
        kept = twin.options.get(flag)
        assert (kept == [value]) or flag in named or f"{flag} {value} -> " in twin.report


def test_engine_groups_shrink_to_one_engine_each() -> None:
    groups = [
        {"worker_type": "prefill", "num_gpus": 4, "num_gpus_per_engine": 2, "overrides": {"a": 1}},
        {"worker_type": "placeholder", "num_gpus": 2},
        {"worker_type": "decode", "num_gpus": 2},
    ]
    small, count = small_engines({"sglang": [{"name": "actor", "server_groups": groups}]})
    (model,) = small["sglang"]
    assert count == 2
    assert model["server_groups"] == [
        {"worker_type": "prefill", "num_gpus": 1, "num_gpus_per_engine": 1, "overrides": {"a": 1}},
        {"worker_type": "decode", "num_gpus": 1, "num_gpus_per_engine": 1},
    ]


@pytest.mark.parametrize(
    ("response", "reward"),
    [("dcba", 1.0), (" dcba ", 1.0), ("", 0.0), ("....", 0.0), ("dxyz", 0.3125), ("xxxx", 0.25)],
)
def test_the_reward_tells_answers_apart(response: str, reward: float) -> None:
    assert grade(response, "dcba") == pytest.approx(reward)
