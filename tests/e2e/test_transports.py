"""The job with weights that travel as deltas on disk, and with an engine of somebody else."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slime.arguments import parse_args
from slime.engines.servers import RolloutServers
from tests.e2e.job import Job

SHORT = ("--num-rollout=3", "--skip-eval-before-train", "--eval-interval=100000")
MODEL = "//examples/quickstart:model"
DATA = "//examples/quickstart:data/train.jsonl"


def assert_on_policy(job: Job) -> None:
    for record in job.metrics("rollout"):
        assert record["rollout/weight_lag_max"] == 0
        assert record["train/train_rollout_logprob_abs_diff"] < 1e-4


def test_deltas_on_disk_bring_the_engines_the_trainers_weights(
    start_job: Callable[..., Job],
) -> None:
    transport = ("--update-weight-transport=disk", "--update-weight-mode=delta")
    checked = ("--check-weight-update-equal", "--update-weight-disk-keep-files")
    job = start_job(*SHORT, *transport, *checked)
    assert job.wait() == 0, job.text
    assert len(job.metrics("rollout")) == 3
    assert_on_policy(job)
    sizes = {
        folder.name: sum(file.stat().st_size for file in folder.iterdir())
        for folder in (job.run_dir / "weights").iterdir()
    }
    assert sorted(sizes) == [f"weights_{version:08d}" for version in range(4)]
    assert sizes["weights_00000003"] < 0.9 * sizes["weights_00000000"]


@pytest.fixture
def engine_of_somebody_else(tmp_path: Path) -> Iterator[str]:
    words = "--debug-rollout-only --device cpu --label-key label --rm-type exact --num-rollout 1"
    words += " --rollout-batch-size 16 --n-samples-per-prompt 8 --rollout-max-response-len 12"
    words += f" --hf-checkpoint {MODEL} --prompt-data {DATA} --run-dir {tmp_path / 'other'}"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    args = parse_args(argv=[*words.split(), "--apply-chat-template"])
    servers = RolloutServers(args, args.run_dir)
    servers.start(progress=print)
    yield servers.engine_urls[0].removeprefix("http://")
    assert servers.engines[0].answers()  # the run leaves it as it was
    servers.stop()


def test_an_engine_of_somebody_else_gets_weights_over_a_process_group(
    start_job: Callable[..., Job], engine_of_somebody_else: str
) -> None:
    addresses = f"--rollout-external-engine-addrs={engine_of_somebody_else}"
    job = start_job(*SHORT, addresses, "--check-weight-update-equal")
    assert job.wait() == 0, job.text
    assert len(job.metrics("rollout")) == 3
    assert_on_policy(job)
    assert not (job.run_dir / "logs" / "engine_0.log").exists()
    assert not job.processes()
