"""Qwen3-0.6B, streamed responses; what an abort cuts off is gone on with in the next rollout."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 4
GENERATE = "slime.rollout.sglang_streaming_rollout.generate_streaming"


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--custom-generate-function-path", GENERATE, "--partial-rollout"]
    words += ["--over-sampling-batch-size", "16", "--mask-offpolicy-in-partial-rollout"]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(2), *recipes.engines(2)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute(), on_policy=False)
