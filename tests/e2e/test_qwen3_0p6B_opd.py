"""Qwen3-0.6B, on-policy distillation: the KL to a teacher that Megatron runs."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 4


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--use-opd", "--opd-type", "megatron", "--opd-kl-coef", "1.0"]
    words += ["--opd-teacher-load", U.hf_download_model(MODEL), *recipes.GRPO, *recipes.ADAM]
    words += [*recipes.PRECISION, *recipes.CUDA, *recipes.layout(2), *recipes.engines(2)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute())
