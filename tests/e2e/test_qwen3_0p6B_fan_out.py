"""Qwen3-0.6B, fan-out: one prompt gives samples of different lengths, all of which train."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 4


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--custom-generate-function-path", "tests.e2e.fan_out.generate"]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(2), *recipes.engines(2)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B")


def test_trains() -> None:
    prepare()
    outcome = execute()
    recipes.assert_trained(outcome)
