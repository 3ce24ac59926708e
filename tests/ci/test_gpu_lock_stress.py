"""200 processes compete for 8 simulated GPUs while some of them are killed."""

from pathlib import Path

from tests.ci.gpu_contest import assert_fair, contest


def test_two_hundred_processes(tmp_path: Path) -> None:
    result = contest(200, tmp_path, timeout=240, seed=1)
    print(
        f"{result.finished} finished, {result.killed} killed, {result.killed_at_work} of them "
        f"at work; longest from start to end {max(result.waits):.1f} s"
    )
    assert_fair(result, 200, tmp_path)
