"""The report goes on writing metrics whatever happens to the terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from argparse import Namespace
from slime.tracking.report import RunReport
args = Namespace(run_dir=sys.argv[1], use_wandb=False, use_tensorboard=False, no_progress=False)
report = RunReport(args)
report.begin(0, 3)
for rollout_id in range(3):
    report.rollout(rollout_id, {"rollout/raw_reward": rollout_id / 2})
    report.stage("x" * 100_000)
report.finished(0)
print("the end", file=sys.stderr)
"""


def run(folder: Path, reader: list[str]) -> tuple[str, str, int]:
    """What a reader at the end of a pipe, and stderr, got; and the exit code."""
    writer = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    read = subprocess.run(reader, stdin=writer.stdout, capture_output=True, text=True, timeout=30)
    writer.stdout.close()
    error = writer.stderr.read()
    return read.stdout, error, writer.wait(30)


def test_a_reader_that_leaves_does_not_end_the_run(tmp_path: Path) -> None:
    shown, error, code = run(tmp_path, ["head", "-1"])
    assert "all up" in shown
    assert (error.strip(), code) == ("the end", 0)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["rollout/raw_reward"] for line in lines] == [0.0, 0.5, 1.0]


def test_a_pipe_gets_one_line_per_rollout_and_the_summary(tmp_path: Path) -> None:
    shown, _, code = run(tmp_path, ["cat"])
    assert code == 0
    for text in ("rollout 1/3  reward 0.000", "rollout 3/3  reward 1.000", "finished 3 rollouts"):
        assert text in shown
