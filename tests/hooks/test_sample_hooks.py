"""Sample hooks: shapes are kept, arguments are offered, rollouts do not see each other's id."""

import asyncio
import threading
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from slime.hooks.sample_hooks import (
    apply_rollout_sample_hooks,
    current_rollout_id,
    set_current_rollout_id,
)
from slime.samples.sample import Sample


def tag(args: Namespace, sample: Sample) -> None:
    sample.response += "t"


async def replace(args: Namespace, sample: Sample) -> Sample:
    await asyncio.sleep(0)
    return Sample(index=sample.index, response=sample.response + "r")


def declares(args: Namespace, sample: Sample, rollout_id: int | None, color: str) -> None:
    sample.metadata = {"rollout_id": rollout_id, "color": color}


def takes_all(args: Namespace, sample: Sample, **kwargs: Any) -> None:
    sample.metadata = kwargs


def positional_only(args: Namespace, sample: Sample, /, color: str) -> None:
    sample.metadata = {"color": color}


def keywords_only(*both: Any, color: str) -> None:
    both[1].metadata = {"color": color}


async def wrong_later(args: Namespace, sample: Sample) -> list[Sample]:
    return [sample]


def wrong(args: Namespace, sample: Sample) -> str:
    return "no sample"


def apply(value: Any, *names: str, **kwargs: Any) -> Any:
    args = Namespace(rollout_sample_hook_path=[f"{__name__}.{name}" for name in names])
    return asyncio.run(apply_rollout_sample_hooks(args, value, **kwargs))


def test_without_hooks_the_value_itself_comes_back() -> None:
    value = [[Sample()], Sample()]
    assert apply(value) is value


def test_hooks_run_in_order_over_nested_lists() -> None:
    result = apply([Sample(index=0), [[Sample(index=1)], []]], "tag", "replace", "tag")
    assert [result[0].response, result[1][0][0].response] == ["trt", "trt"]
    assert result[1][1] == [] and result[1][0][0].index == 1


def test_a_hook_gets_what_it_declares() -> None:
    assert apply(Sample(), "declares", color="red", other=1).metadata == {
        "rollout_id": None,
        "color": "red",
    }
    assert apply(Sample(), "takes_all", color="red", other=1).metadata == {
        "rollout_id": None,
        "color": "red",
        "other": 1,
    }
    assert apply(Sample(), "tag", color="red").response == "t"
    for name in ("positional_only", "keywords_only"):
        assert apply(Sample(), name, color="red", other=1).metadata == {"color": "red"}


def test_another_result_is_an_error_that_names_the_hook() -> None:
    with pytest.raises(TypeError, match=r"test_sample_hooks\.wrong returned str"):
        apply([Sample()], "wrong")
    with pytest.raises(TypeError, match=r"test_sample_hooks\.wrong_later returned list"):
        apply([Sample()], "tag", "wrong_later")


def test_concurrent_rollouts_see_their_own_id() -> None:
    async def rollout(rollout_id: int | None) -> int | None:
        set_current_rollout_id(rollout_id)
        sample = Sample()
        args = Namespace(rollout_sample_hook_path=[f"{__name__}.takes_all"])
        for _ in range(3):
            await asyncio.sleep(0)
            await asyncio.create_task(apply_rollout_sample_hooks(args, sample))
        return sample.metadata["rollout_id"]

    async def run() -> list[int | None]:
        return await asyncio.gather(rollout(1), rollout(None), rollout(2))

    assert asyncio.run(run()) == [1, None, 2]
    assert current_rollout_id() is None


def test_loops_in_several_threads_see_their_own_id() -> None:
    """A rollout and the evaluation beside it, each in an event loop of its own."""
    barrier = threading.Barrier(4)

    def worker(rollout_id: int | None) -> int | None:
        async def rollout() -> int | None:
            set_current_rollout_id(rollout_id)
            await asyncio.to_thread(barrier.wait, 10)
            sample = Sample()
            args = Namespace(rollout_sample_hook_path=[f"{__name__}.takes_all"])
            await asyncio.gather(*(apply_rollout_sample_hooks(args, [sample]) for _ in range(3)))
            return sample.metadata["rollout_id"]

        return asyncio.run(rollout())

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(worker, [1, None, 2, 3])) == [1, None, 2, 3]
