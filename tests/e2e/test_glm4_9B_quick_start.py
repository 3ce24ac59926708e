"""GLM-Z1-9B, the published quick start: GRPO with evaluation, train ranks and engines apart."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "zai-org/GLM-Z1-9B-0414"
NUM_GPUS = 8


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)
    U.hf_download_dataset(recipes.AIME)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += [
        *recipes.evaluation(),
        *recipes.GRPO,
        *recipes.ADAM,
        *recipes.PRECISION,
        *recipes.CUDA,
    ]
    words += [*recipes.layout(4, tp=2, cp=2), *recipes.engines(4)]
    return recipes.train(__file__, words, NUM_GPUS, "glm4-9B")


def test_trains() -> None:
    prepare()
    outcome = execute()
    recipes.assert_trained(outcome)
    assert outcome.metrics("eval")
