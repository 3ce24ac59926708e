"""Engines from a file; one is killed in mid-run: the run goes on, and another takes its place."""

import psutil

from tests.e2e import recipes
from tests.e2e.engine_fault import LOG, VICTIM
from tests.e2e.launch import U

MODEL = "Qwen/Qwen3-0.6B"
NUM_GPUS = 8
FAULTS = ["--use-fault-tolerance", "--rollout-health-check-interval", "5"]
FAULTS += ["--rollout-sample-hook-path", "tests.e2e.engine_fault.kill_and_wait"]
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


def test_trains_on_without_an_engine_and_with_a_new_one() -> None:
    prepare()
    outcome = execute()
    recipes.assert_trained(outcome, rollouts=3)
    assert not psutil.pid_exists(int((outcome.run_dir / VICTIM).read_text()))
    log = (outcome.run_dir / LOG).read_text()
    assert log.index("is started again") < log.index("serves again")
