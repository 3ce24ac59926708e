"""The checkpoint tests' common part: train, stop, go on from what was saved.

A run that was not interrupted says what must come out; its rollouts are what the others train on,
so that one start of engines serves all of these tests in a process.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-4B"
NUM_GPUS = 8
OPTIMIZER = {"gpu": [], "cpu": recipes.HOST_OPTIMIZER}
TOLERANCE = 3e-2  # bf16


def prepare() -> None:
    """Model and data."""
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def options(rollouts: int) -> list[str]:
    """What all runs have in common."""
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts(count=rollouts)]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [
        "--use-distributed-optimizer",
        "--bf16",
        *recipes.layout(4, tp=2),
        *recipes.engines(4),
    ]
    return words


@cache
def uninterrupted() -> tuple[recipes.Outcome, str]:
    """Three rollouts in one run, and where they were saved."""
    dump = str(U.cache_dir() / "rollouts" / U.create_run_id())
    words = [*options(rollouts=3), "--save-debug-rollout-data", dump]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-4B"), dump


def resumed(
    test_file: str, name: str, rollouts: int, optimizer: str, more: Sequence[str]
) -> recipes.Outcome:
    """A run without engines, on the rollouts of the uninterrupted one."""
    _, dump = uninterrupted()
    words = [*options(rollouts), "--debug-train-only", "--load-debug-rollout-data", dump]
    words += [*OPTIMIZER[optimizer], *more]
    return recipes.train(test_file, words, NUM_GPUS, "qwen3-4B", name=name)


@cache
def saved(optimizer: str, more: tuple[str, ...]) -> tuple[recipes.Outcome, Path]:
    """Two rollouts and a checkpoint, for all tests in the process that go on from this one."""
    folder = U.cache_dir() / "checkpoints" / U.create_run_id()
    where = ["--save", str(folder), "--save-interval", "1", *more]
    outcome = resumed(__file__, "first", 2, optimizer, where)
    assert (folder / "latest_checkpointed_iteration.txt").read_text().strip() == "1"
    return outcome, folder


def execute(test_file: str, saved_on: str, loaded_on: str, more: Sequence[str] = ()) -> None:
    """Two rollouts, a checkpoint, and the third in a run of its own: as if nothing had been."""
    expected, _ = uninterrupted()
    first, folder = saved(saved_on, tuple(more))
    second = resumed(test_file, "second", 3, loaded_on, ["--load", str(folder), *more])
    assert [record["step"] for record in second.metrics()] == [2]
    for metric in ("train/loss", "train/grad_norm"):
        found = [*first.series(metric), *second.series(metric)]
        assert found == pytest.approx(expected.series(metric), rel=TOLERANCE, abs=1e-6), metric
