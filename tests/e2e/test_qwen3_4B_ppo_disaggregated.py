"""Qwen3-4B, PPO: actor and engines have GPUs of their own."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-4B"
NUM_GPUS = 8


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += [*recipes.PPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(4, tp=2), *recipes.engines(4, per_engine=2)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-4B")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute())
