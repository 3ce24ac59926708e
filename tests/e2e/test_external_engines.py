"""Qwen3-0.6B on an engine that somebody else has started: it gets the weights and stays."""

from tests.e2e import recipes
from tests.e2e.launch import U
from tests.e2e.outside_engine import outside_engine

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 4


def prepare() -> None:
    U.hf_download_model(MODEL)
    U.hf_download_dataset(recipes.MATH)


def execute(address: str) -> recipes.Outcome:
    words = ["--hf-checkpoint", U.hf_download_model(MODEL), *recipes.math_rollouts()]
    words += ["--rollout-external-engine-addrs", address]
    words += [*recipes.GRPO, *recipes.ADAM, *recipes.PRECISION, *recipes.CUDA]
    words += [*recipes.layout(2), *recipes.engines(1)]
    return recipes.train(__file__, words, NUM_GPUS, "qwen3-0.6B")


def test_trains_and_leaves_the_engine_running() -> None:
    prepare()
    with outside_engine(U.hf_download_model(MODEL)) as engine:
        recipes.assert_trained(execute(engine.address))
        assert engine.process.poll() is None
