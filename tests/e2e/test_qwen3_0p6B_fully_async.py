"""Qwen3-0.6B, fully asynchronous: a worker keeps generating beside the trainer."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 4
ROLLOUT = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--rollout-function-path", ROLLOUT, *recipes.GRPO, *recipes.ADAM]
    words += [*recipes.PRECISION, *recipes.CUDA, *recipes.layout(2), *recipes.engines(2)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B", script="train_async.py")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute(), on_policy=False)
