"""Qwen3-30B-A3B: the trainer routes each token to the experts that the engine chose."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-30B-A3B"
NUM_GPUS = 8


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--use-routing-replay", "--use-rollout-routing-replay", *recipes.GRPO, "--colocate"]
    words += [*recipes.ADAM, *recipes.PRECISION, *recipes.CUDA, *recipes.HOST_OPTIMIZER]
    words += [*recipes.layout(8, tp=4, ep=8), *recipes.engines(8, per_engine=8)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-30B-A3B")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute())
