"""The kill campaign in short: one run whose parts are killed and frozen one after the other."""

import signal
from pathlib import Path

from tests.faults.campaign import PARTS, FaultyRun, plans


def test_a_run_survives_its_parts_and_is_resumed_after_its_core(tmp_path: Path) -> None:
    plan = [
        ("scheduler", signal.SIGKILL, 0.3),
        ("router", signal.SIGSTOP, 0.1),
        ("train rank", signal.SIGKILL, 0.2),
    ]
    outcome = FaultyRun(tmp_path, 14, plan).run()
    assert outcome.is_good, outcome
    assert [fault.part for fault in outcome.faults] == [part for part, _, _ in plan]
    assert [fault.resumed for fault in outcome.faults] == [False, False, True]


def test_every_part_comes_up_equally_often_and_a_seed_gives_the_same_faults() -> None:
    drawn = list(plans(3, 14, list(PARTS), 4))
    assert [len(plan) for plan in drawn] == [4, 4, 4, 2]
    parts = [part for plan in drawn for part, _, _ in plan]
    assert sorted(parts) == sorted(2 * list(PARTS))
    assert drawn == list(plans(3, 14, list(PARTS), 4))
    assert drawn != list(plans(4, 14, list(PARTS), 4))
