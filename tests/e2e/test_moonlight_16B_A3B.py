"""Moonlight-16B-A3B: multi-head latent attention and shared experts."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "moonshotai/Moonlight-16B-A3B-Instruct"
NUM_GPUS = 8
ROLLOUTS = recipes.math_rollouts(length=4096)  # prompt and response have 8192 together


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *ROLLOUTS]
    words += [*recipes.GRPO, "--colocate", *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.HOST_OPTIMIZER]
    words += [*recipes.layout(8, tp=4, ep=8), *recipes.engines(8, per_engine=8)]
    return recipes.train(__file__, words, NUM_GPUS, "moonlight")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute())
