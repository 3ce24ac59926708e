"""Draws a run's reward curve from its metrics.jsonl.

./bazelw run //examples/quickstart:plot -- --out docs/reward.png RUN_DIR [RUN_DIR ...]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from slime.tracking.metrics_file import read_metrics

REWARD = "rollout/raw_reward"


def reward_curve(run_dir: Path) -> tuple[list[int], list[float]]:
    """Rollout numbers, counted from 1, and the mean reward of each.

    Raises:
        ValueError: the run has recorded no rewards yet.
    """
    records = [r for r in read_metrics(run_dir / "metrics.jsonl") if r["kind"] == "rollout"]
    points = [(record["step"] + 1, record[REWARD]) for record in records if REWARD in record]
    if not points:
        raise ValueError(f"{run_dir / 'metrics.jsonl'} holds no {REWARD}")
    steps, rewards = zip(*points, strict=True)
    return list(steps), list(rewards)


def evaluations(run_dir: Path) -> list[tuple[int, float]]:
    """(rollouts done, held-out score) of each evaluation; of several sets the first counts."""
    found = []
    for record in read_metrics(run_dir / "metrics.jsonl"):
        scores = [v for k, v in record.items() if k.startswith("eval/") and k.count("/") == 1]
        if record["kind"] == "eval" and scores:
            found.append((record["step"], scores[0]))
    return found


def draw(run_dirs: Sequence[Path], out: Path) -> None:
    """Writes one picture (PNG, SVG or PDF by the name of `out`) with a curve for each run."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    for run_dir in run_dirs:
        (line,) = axes.plot(*reward_curve(run_dir), linewidth=1.5, label=run_dir.name)
        held_out = evaluations(run_dir)
        if held_out:
            axes.plot(*zip(*held_out, strict=True), "o", markersize=7, color=line.get_color())
    axes.set(xlabel="rollout", ylabel="mean reward (dots: held-out accuracy)", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(out, dpi=150, metadata={"Software": None} if out.suffix == ".png" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dirs", type=Path, nargs="+", metavar="RUN_DIR")
    parser.add_argument("--out", type=Path, default=Path("reward.png"))
    args = parser.parse_args()
    draw(args.run_dirs, args.out)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
