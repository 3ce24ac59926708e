"""The user's log functions see what was generated, and add to or replace the standard metrics."""

import sys
import types
from argparse import Namespace
from typing import Any

import pytest

from slime.cluster.measure import measure_evaluation, measure_rollout
from slime.samples.sample import Sample


def args(**paths: str) -> Namespace:
    names = ("custom_rollout_log_function_path", "custom_eval_rollout_log_function_path")
    options = dict.fromkeys(names)
    switches = dict.fromkeys(
        ("log_passrate", "log_multi_turn", "log_correct_samples", "partial_rollout"), False
    )
    values = {"reward_key": None, "log_reward_category": None, "n_samples_per_prompt": 1}
    return Namespace(**{**options, **switches, **values, **paths})


def samples() -> list[Sample]:
    return [
        Sample(group_index=0, index=i, tokens=[1, 2, 3], response_length=2, reward=float(i))
        for i in range(2)
    ]


@pytest.fixture
def user_code(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("user_code")
    monkeypatch.setitem(sys.modules, "user_code", module)
    return module


def test_standard_metrics_without_a_function() -> None:
    found = measure_rollout(args(), 3, samples(), {"mine": 1}, 0.5, trainer_version=3)
    assert (found["mine"], found["rollout/raw_reward"]) == (1, 0.5)


@pytest.mark.parametrize("replaces", [False, True])
def test_a_rollout_function_adds_or_replaces(user_code: types.ModuleType, replaces: bool) -> None:
    def log(rollout_id: int, args: Any, samples: list, metrics: dict, seconds: float) -> bool:
        metrics["seen"] = (rollout_id, len(samples), seconds)
        return replaces

    user_code.log = log
    given = args(custom_rollout_log_function_path="user_code.log")
    found = measure_rollout(given, 3, samples(), {}, 0.5, trainer_version=3)
    assert found["seen"] == (3, 2, 0.5)
    assert ("rollout/raw_reward" in found) is not replaces


@pytest.mark.parametrize("replaces", [False, True])
def test_an_eval_function_adds_or_replaces(user_code: types.ModuleType, replaces: bool) -> None:
    def log(rollout_id: int, args: Any, data: dict, metrics: dict) -> bool:
        metrics["seen"] = (rollout_id, list(data))
        return replaces

    user_code.log = log
    data = {"held_out": {"rewards": [0.0, 1.0], "truncated": [False, False], "samples": samples()}}
    given = args(custom_eval_rollout_log_function_path="user_code.log")
    found = measure_evaluation(given, 7, data, {})
    assert found["seen"] == (7, ["held_out"])
    assert found.get("eval/held_out") == (None if replaces else 0.5)
