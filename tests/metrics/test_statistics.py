"""Merged statistics are those of the whole."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.metrics.rollout import sample_statistics
from slime.metrics.statistics import Max, Mean, Sum, merge, values
from slime.samples.sample import Sample


def test_means_of_unequal_parts() -> None:
    """1.0 over four and 3.0 over one is 1.4, not 2.0."""
    parts = [{"loss": Mean.of([1.0] * 4)}, {"loss": Mean.of([3.0])}]
    assert values(merge(parts)) == {"loss": pytest.approx(1.4)}


def test_weightless_values_count_for_nothing_not_even_nan() -> None:
    assert Mean.of([1.0, math.nan, 3.0], [1, 0, 1]).value == 2.0


def test_statistics_of_nothing_are_left_out() -> None:
    assert values({"mean": Mean.of([]), "max": Max.of([]), "count": Sum(0)}) == {"count": 0.0}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), min_size=1, max_size=12
    ),
    st.data(),
)
def test_any_split_of_samples_gives_the_numbers_of_the_whole(
    shapes: list, data: st.DataObject
) -> None:
    samples = [
        Sample(
            tokens=[0] * (prompt + response),
            response_length=response,
            status=Sample.Status.TRUNCATED if cut else Sample.Status.COMPLETED,
        )
        for prompt, response, cut in shapes
    ]
    cut = data.draw(st.integers(0, len(samples)))
    parts = [sample_statistics(samples[:cut]), sample_statistics(samples[cut:])]
    assert values(merge(parts)) == pytest.approx(values(sample_statistics(samples)))
