"""Grouping is by identity, never by position."""

import pytest

from slime.samples.groups import flatten, group_identity, positions_by, rollout_identities
from slime.samples.sample import Sample


def test_rollouts_are_recognised_wherever_their_samples_stand() -> None:
    samples = [Sample(rollout_id=7), Sample(rollout_id=2), Sample(rollout_id=7), Sample(index=7)]
    assert rollout_identities(samples) == [0, 1, 0, 2]


def test_samples_without_any_identity_are_rollouts_of_their_own() -> None:
    assert rollout_identities([Sample(), Sample(), Sample(index=0)]) == [0, 1, 2]


def test_positions_by_keeps_order_of_appearance() -> None:
    assert positions_by(["b", "a", "b"]) == {"b": [0, 2], "a": [1]}


def test_a_group_without_identity_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="--disable-rewards-normalization"):
        group_identity(Sample(index=4))


def test_flatten_nested_groups() -> None:
    a, b, c = Sample(index=0), Sample(index=1), Sample(index=2)
    assert flatten([[a, [b]], c]) == [a, b, c]
