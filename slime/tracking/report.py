"""What the driver tells about a run: stages, a live line per rollout, metrics, the summary."""

import contextlib
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from slime.tracking.backends import open_backends
from slime.tracking.metrics_file import MetricsFile
from slime.tracking.summary import Totals, render_summary

_LINE = (
    ("rollout/raw_reward", "reward {:.3f}"),
    ("rollout/response_len_mean", "length {:.1f}"),
    ("train/loss", "loss {:+.4f}"),
    ("train/grad_norm", "grad-norm {:.3f}"),
    ("perf/rollout_seconds", "rollout {:.2f} s"),
    ("perf/train_seconds", "train {:.2f} s"),
)


class _Console(Console):
    """Goes on in silence when nobody reads any more (``| head``, a closed terminal)."""

    def on_broken_pipe(self) -> None:
        """Rich would end the program; a run of hours and its metrics file go on."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


class RunReport:
    """One per run, in the driver. Every method may be called at any time."""

    def __init__(self, args: Namespace) -> None:
        self.args = args
        self.run_dir = Path(args.run_dir)
        self.metrics = MetricsFile(self.run_dir / "metrics.jsonl")
        self.totals = Totals()
        self._console = _Console(highlight=False, soft_wrap=True)
        self._backends = open_backends(args)
        self._progress: Progress | None = None
        self._started = time.monotonic()
        self._num_rollout = 0

    def stage(self, text: str) -> None:
        """Say what is being waited for."""
        self._say(f"[{self._elapsed():6.1f} s] {text}")

    def begin(self, start: int, num_rollout: int) -> None:
        """The processes are up; rollouts ``start`` to ``num_rollout`` - 1 follow."""
        self.totals.setup_seconds = self._elapsed()
        self._num_rollout = num_rollout
        resumed = f", resuming at rollout {start}" if start else ""
        self.stage(f"all up{resumed}; logs and metrics in {self.run_dir}")
        if sys.stdout.isatty() and not self.args.no_progress:
            columns = (BarColumn(bar_width=16), MofNCompleteColumn(), TimeElapsedColumn())
            text = TextColumn("{task.description}", table_column=Column(no_wrap=True))
            self._progress = Progress(
                *columns, text, console=self._console, refresh_per_second=2, expand=True
            )
            self._task = self._progress.add_task("", total=num_rollout, completed=start)
            self._progress.start()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block as ``name``."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.totals.add_phase(name, time.monotonic() - started)

    def rollout(self, rollout_id: int, metrics: dict[str, float]) -> None:
        """Record rollout ``rollout_id``."""
        self.totals.add_rollout(metrics)
        self._record("rollout", rollout_id, metrics)
        shown = [text.format(metrics[key]) for key, text in _LINE if key in metrics]
        line = "  ".join(shown)
        if self._progress is not None:
            self._progress.update(self._task, completed=rollout_id + 1, description=line)
        else:
            self._say(f"rollout {rollout_id + 1}/{self._num_rollout}  {line}")

    def evaluation(self, step: int, metrics: dict[str, float]) -> None:
        """Record an evaluation made after ``step`` rollouts."""
        self.totals.add_evaluation(step, metrics)
        self._record("eval", step, metrics)
        shown = "  ".join(f"{key} {value:.3f}" for key, value in metrics.items() if _is_score(key))
        self._say(f"evaluation after {step} rollouts  {shown}")

    def wrote(self, what: str, path: Path) -> None:
        """Remember where something lies, for the summary."""
        self.totals.written[what] = path

    def interrupted(self, signal_name: str) -> None:
        """The run was told to stop."""
        self._close()
        self._say(
            f"\nstopped by {signal_name} after {self._elapsed():.0f} s. {self._how_to_resume()}"
        )

    def failed(self, cause: str) -> None:
        """The run failed because of ``cause``."""
        self._close()
        print(f"\nthe run failed: {cause}\n{self._how_to_resume()}", file=sys.stderr, flush=True)

    def finished(self, peak_memory_bytes: int) -> None:
        """All went well."""
        self._close()
        self._say(render_summary(self.totals, self.run_dir, self._elapsed(), peak_memory_bytes))

    def _record(self, kind: str, step: int, metrics: dict[str, float]) -> None:
        self.metrics.write(kind, step, {"time": time.time(), **metrics})
        for backend in self._backends:
            backend.log(step, metrics)

    def _how_to_resume(self) -> str:
        checkpoint = self.totals.written.get("checkpoint")
        if checkpoint is None:
            return f"No checkpoint was written. Logs are in {self.run_dir / 'logs'}."
        return (
            f"Resume with the same command and --load {checkpoint} --run-dir {self.run_dir}; "
            f"logs are in {self.run_dir / 'logs'}."
        )

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _say(self, text: str) -> None:
        (self._progress.console if self._progress else self._console).print(text, markup=False)
        sys.stdout.flush()

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        self.metrics.close()
        for backend in self._backends:
            backend.close()


def _is_score(key: str) -> bool:
    return key.startswith("eval/") and key.count("/") == 1
