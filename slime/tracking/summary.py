"""The summary printed at the end of a run."""

from dataclasses import dataclass, field
from pathlib import Path

_FEW = 5  # rollouts averaged for "reward at the start" and "at the end"


@dataclass
class Totals:
    """Sums over a run; seconds and tokens."""

    setup_seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    rewards: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    generated_tokens: float = 0.0
    trained_tokens: float = 0.0
    rollouts: int = 0
    written: dict[str, Path] = field(default_factory=dict)

    def add_phase(self, name: str, seconds: float) -> None:
        """Count ``seconds`` spent in phase ``name``."""
        self.phases[name] = self.phases.get(name, 0.0) + seconds

    def add_rollout(self, metrics: dict[str, float]) -> None:
        """Count one rollout."""
        self.rollouts += 1
        self.generated_tokens += metrics.get("rollout/response_tokens", 0.0)
        self.trained_tokens += metrics.get("train/tokens", 0.0)
        if "rollout/raw_reward" in metrics:
            self.rewards.append(metrics["rollout/raw_reward"])

    def add_evaluation(self, step: int, metrics: dict[str, float]) -> None:
        """Keep an evaluation made after ``step`` rollouts."""
        self.evaluations.append((step, metrics))


def render_summary(totals: Totals, run_dir: Path, seconds: float, peak_memory: int) -> str:
    """The summary as text."""
    lines = ["", f"finished {totals.rollouts} rollouts in {seconds:.0f} s"]
    if totals.rewards:
        few = min(_FEW, len(totals.rewards))
        before, after = totals.rewards[:few], totals.rewards[-few:]
        lines.append(
            f"  reward      {sum(before) / few:.3f} -> {sum(after) / few:.3f}"
            f"  (mean of the first and last {few} rollouts)"
        )
    lines += _evaluation_lines(totals)
    lines += _speed_lines(totals)
    lines.append(f"  memory      {peak_memory / 1e9:.2f} GB at the peak, all processes together")
    lines.append(f"  run folder  {run_dir}")
    lines += [f"  {what:<10}  {path}" for what, path in totals.written.items()]
    return "\n".join(lines)


def _evaluation_lines(totals: Totals) -> list[str]:
    if not totals.evaluations:
        return []
    first, last = totals.evaluations[0][1], totals.evaluations[-1][1]
    names = [key for key in last if key.startswith("eval/") and key.count("/") == 1]
    return [
        f"  {name:<10}  {first.get(name, float('nan')):.3f} -> {last[name]:.3f}  (held out)"
        for name in names
    ]


def _speed_lines(totals: Totals) -> list[str]:
    busy = sum(totals.phases.values())
    if not busy:
        return []
    shares = "  ".join(
        f"{name} {100 * spent / busy:.0f} %"
        for name, spent in sorted(totals.phases.items(), key=lambda item: -item[1])
    )
    rate = {
        "rollout": (totals.generated_tokens, totals.phases.get("rollout", 0.0)),
        "training": (totals.trained_tokens, totals.phases.get("train", 0.0)),
    }
    speeds = ", ".join(
        f"{name} {tokens / spent:.0f}" for name, (tokens, spent) in rate.items() if tokens and spent
    )
    lines = [f"  time        set-up {totals.setup_seconds:.0f} s, then {busy:.0f} s: {shares}"]
    return lines + ([f"  tokens/s    {speeds}"] if speeds else [])
