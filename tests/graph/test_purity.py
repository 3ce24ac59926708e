"""No path leads from a pure room to torch or a running part, nor from algorithms to the latter."""

import os
import re
from pathlib import Path

import pytest

RUNNING = {"megatron_core", "ray", "sglang", "sglang_router", "transformers"}


def packages_reached(answer: str) -> set[str]:
    """Names of the wheels in a query's answer."""
    text = Path(os.environ["SLIME_RUNFILES"], "tests/graph", answer).read_text()
    return set(re.findall(r"^@[^/]*pypi_(\w+)//", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("answer", "forbidden", "expected"),
    [
        ("reach_of_pure_rooms", RUNNING | {"torch"}, {"numpy"}),
        ("reach_of_algorithms", RUNNING, {"torch"}),
    ],
)
def test_reaches_nothing_forbidden(answer, forbidden, expected):
    reached = packages_reached(answer)
    assert expected <= reached  # the query does see wheels
    assert not reached & forbidden
