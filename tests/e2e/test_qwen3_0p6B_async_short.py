"""Qwen3-0.6B, one step off-policy: the next rollout is generated while one trains."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 4


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(2), *recipes.engines(2)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B", script="train_async.py")


def test_trains() -> None:
    prepare()
    outcome = execute()
    recipes.assert_trained(outcome, on_policy=False)
    assert max(outcome.series("rollout/weight_lag_max")) <= 1
