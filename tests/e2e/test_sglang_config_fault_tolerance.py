"""Engines from a file, with health checks and restarts on (tests/faults kills some)."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 8
FAULTS = ["--use-fault-tolerance", "--rollout-health-check-interval", "5"]
GROUPS = [
    {"worker_type": "regular", "num_gpus": 2, "num_gpus_per_engine": 1},
    {"worker_type": "regular", "num_gpus": 2, "num_gpus_per_engine": 1},
]


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--sglang-config", recipes.engine_config(GROUPS)]
    words += [*FAULTS, *recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(4), *recipes.engines(4)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute())
