"""Qwen3-4B, PPO: the critic alone trains at first."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-4B"
NUM_GPUS = 8


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += [*recipes.PPO, "--num-critic-only-steps", "1", *recipes.ADAM, *recipes.PRECISION]
    words += [*recipes.CUDA, *recipes.layout(4, tp=2), *recipes.engines(4, per_engine=2)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-4B")


def test_trains() -> None:
    prepare()
    outcome = execute()
    assert len(outcome.metrics()) >= 2
