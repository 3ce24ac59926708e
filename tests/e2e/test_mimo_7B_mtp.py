"""MiMo-7B-RL: its multi-token prediction layer trains along, and the engine speculates with it."""

from tests.e2e import recipes
from tests.e2e.launch import U

MODEL = "XiaomiMiMo/MiMo-7B-RL"
NUM_GPUS = 8


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute() -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--enable-mtp-training", "--mtp-num-layers", "1", "--mtp-loss-scaling-factor", "0.2"]
    words += ["--sglang-trust-remote-code", *recipes.SPECULATION, *recipes.GRPO, "--colocate"]
    words += [*recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(8, tp=2), *recipes.engines(8)]
    return recipes.train(__file__, words, NUM_GPUS, "mimo-7B")


def test_trains() -> None:
    prepare()
    recipes.assert_trained(execute())
