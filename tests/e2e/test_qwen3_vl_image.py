"""Qwen3-VL-4B: prompts with images, which the engine and the trainer see alike."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-VL-4B-Instruct"
IMAGES = "chenhegu/geo3k_imgurl"
NUM_GPUS = 8


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(IMAGES)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--prompt-data", f"{U.hf_download_dataset(IMAGES)}/train.parquet"]
    words += ["--input-key", "problem", "--label-key", "answer"]
    words += ["--multimodal-keys", '{"image": "images"}', "--rm-type", "math", "--colocate"]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(8, tp=2), *recipes.engines(8)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-vl-4B")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute())
