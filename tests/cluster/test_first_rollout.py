"""Where a run begins."""

from argparse import Namespace

import pytest

from slime.cluster.loop import first_rollout


@pytest.mark.parametrize(
    ("given", "loaded", "first"),
    [(None, [], 0), (None, [0, 0], 0), (None, [20, 20], 20), (5, [20, 20], 5), (0, [20], 0)],
)
def test_after_the_checkpoint_unless_the_option_says_otherwise(
    given: int | None, loaded: list[int], first: int
) -> None:
    assert first_rollout(Namespace(start_rollout_id=given), loaded) == first
