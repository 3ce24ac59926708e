"""Qwen3-0.6B, dense: GRPO with a KL loss towards a converted reference, and evaluation."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 4


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)
    U.hf_download_dataset(recipes.AIME)
    U.convert_checkpoint("Qwen3-0.6B", "qwen3-0.6B", 2, dir_dst=str(U.cache_dir()))


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--ref-load", f"{U.cache_dir()}/Qwen3-0.6B_torch_dist", *recipes.KL_LOSS]
    words += [*recipes.evaluation(), *recipes.GRPO, *recipes.ADAM, *recipes.PRECISION]
    words += [*recipes.CUDA, *recipes.layout(2), *recipes.engines(2)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B")


def test_trains() -> None:
    prepare()
    outcome = execute()
    recipes.assert_trained(outcome)
    assert outcome.metrics("eval")
    # The reference is the very model that the run starts from.
    assert abs(outcome.series("train/kl")[0]) < 1e-3
