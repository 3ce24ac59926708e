"""The idle share of trainer and engines in the three loops, on the same work.

    ./bazelw run //benchmarks:loops

Runs the quick start, without evaluation, by slime.train, by slime.train_async, and by
slime.train_async with the fully asynchronous rollout. A train rank is busy while it trains, the
engines are while they answer a request. The first rollouts are left out: they warm up.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CONFIG = "examples/quickstart/config.yaml"
FULLY_ASYNC = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"
WARM_UP = 5
LOOPS = {
    "sync": ("slime.train",),
    "one step off": ("slime.train_async",),
    "fully async": ("slime.train_async", f"--rollout-function-path={FULLY_ASYNC}"),
}


def run_loop(module: str, options: list[str]) -> list[dict[str, Any]]:
    """The records of all rollouts of one run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", module, f"--config={CONFIG}", f"--run-dir={folder}"]
        subprocess.run(
            [*command, "--skip-eval-before-train", "--eval-interval=1000", *options],
            check=True,
            cwd=os.environ.get("SLIME_RUNFILES", os.getcwd()),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
        )
        lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "rollout"]


def row(records: list[dict[str, Any]]) -> list[float]:
    """Seconds per rollout, idle shares of trainer and engines, lag of the weights."""
    counted = records[WARM_UP:]
    seconds = counted[-1]["time"] - records[WARM_UP - 1]["time"]
    trained = sum(record["perf/train_seconds"] for record in counted)
    generated = sum(record["perf/engines_busy_seconds"] for record in counted)
    lag = statistics.mean(record["rollout/weight_lag_mean"] for record in counted)
    reward = statistics.mean(record["rollout/raw_reward"] for record in counted[-5:])
    return [seconds / len(counted), 1 - trained / seconds, 1 - generated / seconds, lag, reward]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-rollout", type=int, default=40)
    known, options = parser.parse_known_args()
    head = ["loop", "s per rollout", "trainer idle", "engines idle", "mean lag", "last rewards"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name, (module, *extra) in LOOPS.items():
        length = f"--num-rollout={known.num_rollout}"
        records = run_loop(module, [length, *extra, *options])
        seconds, trainer, engines, lag, reward = row(records)
        cells = f"{seconds:.3f} | {trainer:.0%} | {engines:.0%} | {lag:.2f} | {reward:.2f}"
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
