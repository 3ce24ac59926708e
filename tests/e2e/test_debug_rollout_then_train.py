"""Debugging apart: rollouts without a trainer are saved; a trainer without engines takes them."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 4


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> tuple[recipes.Outcome, recipes.Outcome]:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts(count=2)]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(2), *recipes.engines(2)]
    dump = str(U.cache_dir() / "rollouts" / U.create_run_id())
    alone = ["--debug-rollout-only", "--save-debug-rollout-data", dump]
    replay = ["--debug-train-only", "--load-debug-rollout-data", dump]
    return (
        recipes.train(__file__, [*words, *alone], NUM_GPUS, "qwen3-0.6B", name="rollout"),
        recipes.train(__file__, [*words, *replay], NUM_GPUS, "qwen3-0.6B", name="train"),
    )


def test_trains_on_what_was_generated() -> None:
    prepare()
    generated, trained = execute()
    assert all("train/grad_norm" not in record for record in generated.metrics())
    recipes.assert_trained(trained)
    rewards = generated.series("rollout/raw_reward")
    assert trained.series("rollout/raw_reward") == rewards
