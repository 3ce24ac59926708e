"""What rollout functions return, and running coroutines from synchronous code."""

import pytest

from slime.rollout import async_loop
from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput, call_rollout_fn
from slime.samples.sample import Sample


def test_bare_results_are_wrapped_and_typed_ones_kept():
    groups = [[Sample(index=0)]]
    train = call_rollout_fn(lambda a, evaluation: groups, "args", evaluation=False)
    assert isinstance(train, RolloutFnTrainOutput)
    assert train.samples is groups
    data = {"set": {"rewards": [1.0]}}
    assert call_rollout_fn(lambda evaluation: data, evaluation=True) == RolloutFnEvalOutput(data)
    output = RolloutFnTrainOutput(groups, {"x": 1})
    assert call_rollout_fn(lambda evaluation: output, evaluation=False) is output


def test_arguments_reach_the_function():
    def fn(*args, **kwargs):
        return [args, kwargs]

    output = call_rollout_fn(fn, 1, 2, evaluation=False, extra=3)
    assert output.samples == [(1, 2), {"evaluation": False, "extra": 3}]


def test_run_returns_results_and_raises_errors():
    async def work(value):
        if value is None:
            raise KeyError("no value")
        return value + 1

    assert async_loop.run(work(1)) == 2
    with pytest.raises(KeyError, match="no value"):
        async_loop.run(work(None))
