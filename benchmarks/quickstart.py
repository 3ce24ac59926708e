"""The real quick-start run with several seeds, beside the plain loop's compute on the same machine.

    ./bazelw run //benchmarks:quickstart -- --seeds 0 1 2 --out runs/benchmark

Prints a table and writes results.json, into a folder named by the time. The runs keep their folders
in it, to plot them or look at logs.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.plain_loop import run_loop, summarize
from benchmarks.run_memory import RunMemory
from slime.arguments import parse_args
from slime.tracking.metrics_file import read_metrics

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "examples/quickstart/config.yaml"
MARKER = "SLIME_BENCHMARK_RUN"
SCORE = "eval/reverse"
REWARD = "rollout/raw_reward"
FEW = 5  # rollouts averaged for the reward at either end
ROLLOUTS_OF_PLAIN_LOOP = 30


@dataclass
class Result:
    """What one run took (wall seconds) and reached.

    `generating_after` counts from the start of the program until the first evaluation, which is the
    first generation, has *ended*; `overhead` is what a rollout takes beyond the plain loop.
    """

    seed: int
    accuracy_before: float
    accuracy_after: float
    reward_first: float
    reward_last: float
    generating_after: float
    all_rollouts: float
    per_rollout: float
    plain_loop: float
    overhead: float
    whole_run: float
    peak_gigabytes: float
    processes: int


def plain_seconds(seed: int) -> float:
    """Median seconds per rollout of the plain loop with one thread, on the run's model and data."""
    args = parse_args(argv=[f"--config={CONFIG}"])
    torch.set_num_threads(1)
    results = run_loop(args.hf_checkpoint, Path(args.prompt_data), ROLLOUTS_OF_PLAIN_LOOP, seed)
    return summarize(results)["total_seconds"]


def run_job(seed: int, run_dir: Path, options: list[str]) -> tuple[float, float, RunMemory]:
    """Runs the job; returns when it started (epoch seconds), its seconds, and its memory.

    Raises:
        CalledProcessError: the run failed; its output is in `run_dir`.out.
    """
    marker = f"{MARKER}={uuid.uuid4().hex}"
    name, value = marker.split("=")
    seeds = [f"--seed={seed}", f"--rollout-seed={seed}"]
    command = [sys.executable, "-m", "slime.train", f"--config={CONFIG}", f"--run-dir={run_dir}"]
    started = time.time()
    with run_dir.with_suffix(".out").open("w") as output, RunMemory(marker) as memory:
        subprocess.run(
            [*command, *seeds, *options],
            check=True,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, name: value, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    return started, time.time() - started, memory


def measure(seed: int, run_dir: Path, options: list[str]) -> Result:
    """One run and the plain loop right before and right after it."""
    plain = [plain_seconds(seed)]
    started, seconds, memory = run_job(seed, run_dir, options)
    plain.append(plain_seconds(seed))
    records = read_metrics(run_dir / "metrics.jsonl")
    rollouts = [record for record in records if record["kind"] == "rollout"]
    evaluations = [record for record in records if record["kind"] == "eval"]
    rewards = [record[REWARD] for record in rollouts]
    ends = [evaluations[0]["time"]] + [record["time"] for record in rollouts]
    per_rollout = median(after - before for before, after in pairwise(ends))
    return Result(
        seed=seed,
        accuracy_before=evaluations[0][SCORE],
        accuracy_after=evaluations[-1][SCORE],
        reward_first=fmean(rewards[:FEW]),
        reward_last=fmean(rewards[-FEW:]),
        generating_after=evaluations[0]["time"] - started,
        all_rollouts=ends[-1] - ends[0],
        per_rollout=per_rollout,
        plain_loop=fmean(plain),
        overhead=per_rollout - fmean(plain),
        whole_run=seconds,
        peak_gigabytes=memory.peak_bytes / 1e9,
        processes=memory.peak_processes,
    )


def print_table(results: list[Result]) -> None:
    """One column per run: figures are easier to compare side by side."""
    table = Table("", *(f"seed {result.seed}" for result in results))
    rows = [asdict(result) for result in results]
    for key in [key for key in rows[0] if key != "seed"]:
        table.add_row(key.replace("_", " "), *(f"{row[key]:.3g}" for row in rows))
    Console(width=100).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    args, options = parser.parse_known_args()  # what is left goes to slime: --num-rollout 5
    out = args.out.absolute() / time.strftime("%Y%m%d-%H%M%S")
    out.mkdir(parents=True)
    results = []
    for seed in args.seeds:
        results.append(measure(seed, out / f"seed{seed}", options))
        print_table(results)
        text = json.dumps([asdict(result) for result in results], indent=1)
        (out / "results.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
