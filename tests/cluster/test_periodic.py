"""When periodic actions are due."""

import pytest

from slime.cluster.periodic import should_run_periodic_action


@pytest.mark.parametrize(
    ("interval", "per_epoch", "total", "due"),
    [
        (None, None, 5, []),
        (None, 2, 5, []),
        (2, None, None, [1, 3, 5]),
        (2, None, 5, [1, 3, 4]),
        (10, 3, 7, [2, 5, 6]),
        (100, None, 1, [0]),
    ],
)
def test_due(
    interval: int | None, per_epoch: int | None, total: int | None, due: list[int]
) -> None:
    rollouts = range(total or 6)
    found = [i for i in rollouts if should_run_periodic_action(i, interval, per_epoch, total)]
    assert found == due
