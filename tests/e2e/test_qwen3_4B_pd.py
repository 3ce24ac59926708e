"""Qwen3-4B, prefill and decode on engines of their own; Mooncake moves the cache."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-4B"
NUM_GPUS = 8


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--prefill-num-servers", "2", "--sglang-disaggregation-transfer-backend", "mooncake"]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(4, tp=2), *recipes.engines(4)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-4B")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute())
