"""Engines from a file, all on the trainer's GPUs; some of those stay free of engines."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 8
GROUPS = [
    {"worker_type": "regular", "num_gpus": 4, "num_gpus_per_engine": 2},
    {"worker_type": "placeholder", "num_gpus": 4},
]


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--sglang-config", recipes.engine_config(GROUPS), "--colocate", "--offload"]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(8), *recipes.engines(8)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute())
