"""A kill campaign: parts of real runs are killed or frozen at random moments, and afterwards the
samples that were trained on are compared with the planned ones.

    python -m tests.faults.campaign --faults 20 --seed 1 --out campaign.jsonl

Each run of the quick-start model gets a few faults, one after the other. A run that ends is resumed
with the same command and `--load`, as a user would, until it has finished. Each run adds a line to
the file of results; the same command goes on after the last of them.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from slime.data.debug_dump import load_debug_rollout_data
from tests.e2e.job import Job

CONFIG = "examples/quickstart/config.yaml"
SAMPLES = 16 * 8  # of one rollout of that configuration
# Part -> a word of its command line, the signals it gets, and whether the run goes on without it.
PARTS: dict[str, tuple[str, tuple[signal.Signals, ...], bool]] = {
    "engine": ("slime.engines.cpu_launch", (signal.SIGKILL, signal.SIGSTOP), True),
    "scheduler": ("sglang::scheduler", (signal.SIGKILL, signal.SIGSTOP), True),
    "router": ("sglang::router", (signal.SIGKILL, signal.SIGSTOP), True),
    "train rank": ("ray::TrainActor", (signal.SIGKILL,), False),
    "rollout manager": ("ray::RolloutManager", (signal.SIGKILL,), False),
    "driver": ("slime.train", (signal.SIGKILL,), False),
    "Ray node": ("raylet/raylet", (signal.SIGKILL,), False),
}
# Loop -> the program, its options, and after how many rollouts the last one must have been
# generated after a fault.
_FULLY_ASYNC = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"
LOOPS: dict[str, tuple[str, tuple[str, ...], int]] = {
    "sync": ("slime.train", (), 2),
    "one-step-off": ("slime.train_async", (), 3),
    "fully-async": ("slime.train_async", (f"--rollout-function-path={_FULLY_ASYNC}",), 3),
}
_SECONDS = 150.0  # at most, for a fault and for what is not a fault
_CLEAN_SECONDS = 20.0


@dataclass
class Fault:
    """One fault and what came of it. `seconds`: from the fault until rollouts are made again."""

    part: str
    signal: str
    rollout: int
    resumed: bool = False
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    """A run with its faults; all of the lists must be empty, and `finished` true."""

    loop: str
    faults: list[Fault] = field(default_factory=list)
    finished: bool = False
    lost: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    output: str = ""

    @property
    def is_good(self) -> bool:
        """Finished, nothing lost, nothing twice, nothing left behind."""
        left = [*self.left, *(item for fault in self.faults for item in fault.left)]
        return self.finished and not (self.lost or self.twice or left)


class FaultyRun:
    """A run of `rollouts` rollouts in `folder` that gets the faults of `plan`: (part, signal,
    seconds after the first or next rollout)."""

    def __init__(
        self,
        folder: Path,
        rollouts: int,
        plan: Sequence[tuple[str, signal.Signals, float]],
        loop: str = "sync",
    ) -> None:
        self._folder, self._rollouts, self._plan = folder, rollouts, list(plan)
        self._options = [
            f"--num-rollout={rollouts}",
            "--save-interval=4",
            "--skip-eval-before-train",
            "--eval-interval=100000",
            "--use-fault-tolerance",
            "--rollout-health-check-interval=2",
            "--rollout-health-check-timeout=5",
            f"--save-debug-rollout-data={folder / 'dump'}",
        ]
        self._program, options, self._recovered_after = LOOPS[loop]
        self._options += options
        self._outcome = Outcome(loop)
        self._files: set[Path] = set()
        self._deadline = time.monotonic() + _SECONDS * (2 + len(plan))

    def run(self) -> Outcome:
        """To the end, whatever happens."""
        job = self._start(resume=False)
        try:
            for part, number, delay in self._plan:
                job = self._hurt(job, part, number, delay)
            self._outcome.finished = self._finish(job)
        except AssertionError as error:
            self._outcome.output = str(error)[-4000:]
        finally:
            job.end()
        self._outcome.left += self._leftovers(job)
        if self._outcome.finished:
            self._compare()
        return self._outcome

    def _start(self, resume: bool) -> Job:
        marker = uuid.uuid4().hex
        command = [sys.executable, "-m", self._program, f"--config={CONFIG}", *self._options]
        checkpoints = self._folder / "run" / "checkpoints"
        if resume and (checkpoints / "latest_checkpointed_iteration.txt").exists():
            command += ["--load", str(checkpoints)]
        process = subprocess.Popen(
            [*command, f"--run-dir={self._folder / 'run'}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=os.environ.get("SLIME_RUNFILES", os.getcwd()),
            env={**os.environ, "SLIME_E2E_RUN": marker, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        return Job(self._folder / "run", marker, process)

    def _hurt(self, job: Job, part: str, number: signal.Signals, delay: float) -> Job:
        """One fault; returns the job that goes on (another one if the run had to be resumed)."""
        word, _, goes_on = PARTS[part]
        line = job.wait_for_line("rollout ", self._left())
        time.sleep(delay)
        fault = Fault(part, number.name, int(line.split()[1].split("/")[0]))
        self._outcome.faults.append(fault)
        self._files |= job.files()
        pids = [pid for pid, command in job.processes().items() if word in command]
        if not pids:  # the run may just have finished
            fault.part += " (was gone)"
            return job
        job.forget_lines()
        started = time.monotonic()
        os.kill(min(pids), number)
        if not goes_on:
            job.wait(_SECONDS)
            fault.left = self._leftovers(job)
            fault.resumed = True
            job = self._start(resume=True)
        for _ in range(self._recovered_after if goes_on else 1):
            job.wait_for_line("rollout ", self._left())
        fault.seconds = time.monotonic() - started
        print(f"{part:16} {fault.signal:8} at rollout {fault.rollout:3}  {fault.seconds:5.1f} s  "
              f"resumed {fault.resumed}", flush=True)  # fmt: skip
        return job

    def _finish(self, job: Job) -> bool:
        code = job.wait(self._left())
        if code != 0:
            self._outcome.output = job.text[-4000:]
        return code == 0

    def _left(self) -> float:
        return max(1.0, self._deadline - time.monotonic())

    def _leftovers(self, job: Job) -> list[str]:
        """Processes and files that are still there some time after the end of the run."""
        deadline = time.monotonic() + _CLEAN_SECONDS
        while (job.processes() or self._present()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return [*job.processes().values(), *map(str, self._present())]

    def _present(self) -> list[Path]:
        return [path for path in self._files if path.exists()]

    def _compare(self) -> None:
        """The samples of all rollouts, each in the form in which it was trained on last."""
        seen: Counter[int] = Counter()
        for rollout_id in range(self._rollouts):
            template = str(self._folder / "dump" / "{rollout_id}")
            samples = load_debug_rollout_data(template, rollout_id=rollout_id)
            seen.update(int(sample.index) for sample in samples if sample.index is not None)
        planned = range(self._rollouts * SAMPLES)
        missing = [index for index in planned if index not in seen]
        # A fully async run has begun more than it trains on, so it only has to train on so many.
        ahead = sum(index not in planned for index in seen)
        self._outcome.lost = missing[ahead:] if self._outcome.loop == "fully-async" else missing
        self._outcome.twice = [index for index, count in seen.items() if count > 1]


def plans(
    seed: int, faults: int, parts: Sequence[str], per_run: int
) -> Iterator[list[tuple[str, signal.Signals, float]]]:
    """Runs with their faults, all drawn from `seed`: every part comes up equally often."""
    draw = random.Random(seed)
    order = [parts[i % len(parts)] for i in range(faults)]
    draw.shuffle(order)
    for start in range(0, faults, per_run):
        yield [
            (part, draw.choice(PARTS[part][1]), draw.uniform(0.0, 1.5))
            for part in order[start : start + per_run]
        ]


def main() -> int:
    """Run what is left of the campaign; 0 if every run was good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--per-run", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--loops", nargs="+", choices=sorted(LOOPS), default=list(LOOPS))
    parser.add_argument("--out", type=Path, default=Path("campaign.jsonl"))
    given = parser.parse_args()
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    good = [json.loads(line)["good"] for line in lines]
    for run, plan in enumerate(plans(given.seed, given.faults, given.parts, given.per_run)):
        if run < len(lines):
            continue
        loop = given.loops[run % len(given.loops)]
        print(f"run {run} ({loop})", flush=True)
        with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
            outcome = FaultyRun(Path(folder), 5 * len(plan) + 6, plan, loop).run()
        with given.out.open("a") as results:
            results.write(json.dumps({"good": outcome.is_good, **asdict(outcome)}) + "\n")
        good.append(outcome.is_good)
        print("good" if outcome.is_good else f"NOT GOOD: {asdict(outcome)}", flush=True)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
