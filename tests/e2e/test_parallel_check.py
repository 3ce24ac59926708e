"""Precision: one set of rollouts gives the same loss and gradient in every parallel layout."""

import pytest

from tests.e2e import recipes
from tests.e2e.launch import IS_TWIN, U

MODEL = "Qwen/Qwen3-4B"
NUM_GPUS = 8
# What one rank computes, and how it may be split. bf16 on GPUs; the twin computes in float32.
LAYOUTS = {
    "data": recipes.layout(8),
    "tensor": recipes.layout(8, tp=2),
    "context": recipes.layout(8, cp=2),
    "pipeline": recipes.layout(8, pp=2),
}
TOLERANCE = 1e-4 if IS_TWIN else 3e-2


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> dict[str, recipes.Outcome]:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts(count=1)]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    dump = str(U.cache_dir() / "rollouts" / U.create_run_id())
    alone = ["--debug-rollout-only", "--save-debug-rollout-data", dump]
    alone += [*recipes.layout(8), *recipes.engines(8)]
    recipes.train(__file__, [*words, *alone], NUM_GPUS, "qwen3-4B", name="rollout")
    replay = ["--debug-train-only", "--load-debug-rollout-data", dump]
    return {
        name: recipes.train(__file__, [*words, *replay, *layout], NUM_GPUS, "qwen3-4B", name=name)
        for name, layout in LAYOUTS.items()
    }


def test_every_layout_computes_the_same() -> None:
    prepare()
    outcomes = execute()
    for metric in ("train/loss", "train/grad_norm"):
        values = {name: outcome.series(metric) for name, outcome in outcomes.items()}
        for name, series in values.items():
            assert series == pytest.approx(values["data"], rel=TOLERANCE, abs=1e-6), (metric, name)
