"""The metrics file survives crashes and resumes."""

import json
from pathlib import Path

from slime.tracking.metrics_file import MetricsFile, read_metrics


def test_round_trip_and_append(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    for step in (0, 1):
        metrics = MetricsFile(path)
        metrics.write("rollout", step, {"reward": 0.5 + step})
        metrics.close()
    assert [(r["step"], r["reward"]) for r in read_metrics(path)] == [(0, 0.5), (1, 1.5)]


def test_every_line_is_strict_json_even_for_nan(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    metrics.write("rollout", 0, {"loss": float("nan"), "kl": float("inf")})
    metrics.close()

    def refuse(token: str) -> None:
        raise AssertionError(token)

    record = json.loads(path.read_text(), parse_constant=refuse)
    assert (record["loss"], record["kl"]) == ("nan", "inf")


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "rollout", "step": 0, "r": 1}\n{"kind": "rollout", "st')
    assert [r["r"] for r in read_metrics(path)] == [1]


def test_the_record_of_a_resumed_run_wins(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    for value in (1, 2):
        metrics.write("rollout", 7, {"r": value})
    metrics.write("eval", 7, {"r": 3})
    metrics.close()
    assert sorted((r["kind"], r["r"]) for r in read_metrics(path)) == [("eval", 3), ("rollout", 2)]
