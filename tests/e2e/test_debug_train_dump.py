"""Debugging: what the train ranks were given is written to files, rank by rank."""

from pathlib import Path

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 4


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> tuple[recipes.Outcome, Path]:
    dump = U.cache_dir() / "train_data" / U.create_run_id()
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts(count=1)]
    words += ["--save-debug-train-data", f"{dump}/{{rollout_id}}_{{rank}}.pt"]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(2), *recipes.engines(2)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B"), dump


def test_writes_what_was_trained_on() -> None:
    prepare()
    outcome, dump = execute()
    recipes.assert_trained(outcome, rollouts=1)
    assert list(dump.iterdir())
