"""Dynamic sampling filters and buffer filters."""

from argparse import Namespace
from typing import Any

import numpy as np
import pytest

from slime.filters.base_types import (
    DynamicFilterOutput,
    MetricGatherer,
    call_dynamic_filter,
    should_drop_dynamic_filter_output,
)
from slime.filters.buffer import pop_first
from slime.filters.dynamic_sampling import (
    check_reward_nonzero_std,
    check_reward_nonzero_std_with_fallback,
)
from slime.samples.sample import Sample

ARGS = Namespace(reward_key=None)


def group(rewards: list, rollouts: list[int] | None = None) -> list[Sample]:
    rollouts = rollouts or list(range(len(rewards)))
    return [Sample(reward=r, rollout_id=o) for r, o in zip(rewards, rollouts, strict=True)]


@pytest.mark.parametrize(
    ("rewards", "keep", "reason"),
    [
        ([0.0, 1.0], True, None),
        ([1.0, 1.0], False, "zero_std_1.0"),
        ([0.1] * 3, False, "zero_std_0.1"),
        ([1, 0.9999999], True, None),
        ([5.0], False, "zero_std_5.0"),
        ([None, 1.0, 1.0], False, "zero_std_1.0"),
        ([None, 1.0, 0.0], True, None),
        ([None, None], False, "zero_std"),
        ([], False, "zero_std"),
    ],
)
def test_nonzero_std(rewards: list[float], keep: bool, reason: str | None) -> None:
    assert check_reward_nonzero_std(ARGS, group(rewards)) == DynamicFilterOutput(keep, reason)


def test_a_fanned_out_rollout_is_compared_as_one() -> None:
    """Samples differ, rollouts do not: their advantages would be zero."""
    samples = group([1, 0, 0.5], [7, 7, 8])
    assert check_reward_nonzero_std(ARGS, samples).keep is False
    assert check_reward_nonzero_std(ARGS, [samples[:2], [samples[2]]]).keep is False
    assert check_reward_nonzero_std(ARGS, group([1, 1, 0], [7, 7, 8])).keep is True


def test_rounding_makes_no_difference_between_rollouts() -> None:
    """0.1 + 0.1 + 0.1 is not 0.3, so a fan-out of three would differ from one of one."""
    assert check_reward_nonzero_std(ARGS, group([0.1] * 4, [7, 7, 7, 8])).keep is False


def test_ungraded_samples_tell_nothing() -> None:
    assert check_reward_nonzero_std(ARGS, group([1.0, None])).keep is False
    assert check_reward_nonzero_std(ARGS, group([1.0, None, 0.0])).keep is True
    assert check_reward_nonzero_std(ARGS, group([None, None])).reason == "zero_std"


@pytest.mark.parametrize("kind", [int, bool, np.float32, np.float64, np.int64])
def test_rewards_of_any_number_type(kind: Any) -> None:
    assert check_reward_nonzero_std(ARGS, group([kind(1), kind(0)])).keep is True
    assert check_reward_nonzero_std(ARGS, group([kind(1)] * 3, [1, 1, 2])).reason == "zero_std_1.0"


def test_dict_rewards_by_key() -> None:
    samples = group([{"score": 1.0, "x": 0}, {"score": 1.0, "x": 5}])
    assert not check_reward_nonzero_std(Namespace(reward_key="score"), samples).keep
    assert check_reward_nonzero_std(Namespace(reward_key="x"), samples).keep


@pytest.mark.parametrize(
    ("remaining", "target", "dropped"), [(9, 8, True), (8, 8, False), (7, 8, False)]
)
def test_the_fallback_keeps_when_no_more_than_needed_remain(
    remaining: int, target: int, dropped: bool
) -> None:
    counts = {"remaining_batch_size": remaining, "target_data_size": target}
    fallback = check_reward_nonzero_std_with_fallback(ARGS, group([1, 1]))
    assert should_drop_dynamic_filter_output(fallback, **counts) is dropped
    plain = check_reward_nonzero_std(ARGS, group([1, 1]))
    assert should_drop_dynamic_filter_output(plain, **counts) is True
    kept = check_reward_nonzero_std_with_fallback(ARGS, group([1, 0]))
    assert should_drop_dynamic_filter_output(kept, **counts) is False


def test_calls_of_filters() -> None:
    assert call_dynamic_filter(None, ARGS, []).keep is True
    assert call_dynamic_filter(lambda args, samples: False, ARGS, []) == DynamicFilterOutput(False)
    output = DynamicFilterOutput(True)
    assert call_dynamic_filter(lambda args, samples, extra: output, ARGS, [], extra=1) is output
    with pytest.raises(TypeError, match="returned 'yes'"):
        call_dynamic_filter(lambda args, samples: "yes", ARGS, [])


def test_drops_are_counted_by_reason() -> None:
    gatherer = MetricGatherer()
    for reason in ("zero_std_1.0", None, "zero_std_1.0"):
        gatherer.on_dynamic_filter_drop(reason)
    assert gatherer.collect() == {
        "rollout/dynamic_filter/drop_unnamed": 1,
        "rollout/dynamic_filter/drop_zero_std_1.0": 2,
    }


def test_pop_first_takes_out_in_order() -> None:
    buffer = [group([i]) for i in range(3)]
    first, second, third = buffer
    assert pop_first(ARGS, None, buffer, 2) == [first, second] and buffer == [third]
    assert pop_first(ARGS, None, buffer, 5) == [third] and buffer == []
    assert pop_first(ARGS, None, buffer, 1) == []
