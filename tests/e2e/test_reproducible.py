"""The same seed gives the same run, bit for bit: docs/reproducibility.md says what is claimed."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.e2e.job import Job

OPTIONS = (
    *("--sglang-enable-deterministic-inference", "--num-rollout=5", "--eval-interval=5"),
    # Eight prompts, four answers each; a short evaluation, because it is one request at a time.
    *("--rollout-batch-size=8", "--n-samples-per-prompt=4"),
    *("--eval-prompt-data", "reverse", "//examples/quickstart:data/eval.jsonl@[0:16]"),
)
Record = dict[str, Any]


def without_times(records: Iterable[Record]) -> list[Record]:
    """What is left of metrics when the clock and everything measured with it is taken out."""

    def is_timed(name: str) -> bool:
        return name == "time" or name.startswith("perf/") or "seconds" in name

    return [{key: v for key, v in one.items() if not is_timed(key)} for one in records]


def first_difference(first: list[Record], second: list[Record]) -> str | None:
    """The step at which two runs' metrics part, and how; None if they do not."""
    for one, other in zip(first, second, strict=False):
        names = sorted(one.keys() | other.keys())
        apart = [name for name in names if one.get(name) != other.get(name)]
        if apart:
            values = ", ".join(f"{name} {one.get(name)} != {other.get(name)}" for name in apart)
            return f"{one['kind']} {one['step']}: {values}"
    if len(first) != len(second):
        return f"{len(first)} records != {len(second)} records"
    return None


def digests(folder: Path) -> dict[str, str]:
    """File -> digest, of the exported weights."""
    files = sorted(folder.glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_first_difference() -> None:
    run = [{"kind": "rollout", "step": step, "loss": 0.5, "time": 1.0} for step in range(3)]
    other = [dict(one) for one in run]
    other[1] |= {"loss": 0.5 + 2**-53, "time": 2.0}
    assert first_difference(run, run) is None
    assert first_difference(without_times(run), without_times(other)) == (
        "rollout 1: loss 0.5 != 0.5000000000000001"
    )
    assert first_difference(run, run[:2]) == "3 records != 2 records"


def test_two_runs_are_the_same(start_job: Callable[..., Job]) -> None:
    # Side by side, so that what depends on timing gets its chance to show.
    jobs = [start_job(*OPTIONS) for _ in range(2)]
    for job in jobs:
        assert job.wait() == 0, job.text
    runs = [without_times(job.metrics("rollout") + job.metrics("eval")) for job in jobs]
    assert first_difference(*runs) is None
    assert [record["step"] for record in runs[0]] == [0, 1, 2, 3, 4, 0, 5]
    # It is a run that learns from samples that differ: else this would be easy.
    assert all(record["train/grad_norm"] > 0 for record in runs[0][:5])
    weights = [digests(job.run_dir / "hf") for job in jobs]
    assert weights[0] == weights[1]
    assert weights[0]
