"""Which grader is used, off the event loop, with the same result from any thread."""

import asyncio
import threading
from argparse import Namespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from slime.arguments import reward
from slime.arguments.errors import ConfigError
from slime.rewards import remote
from slime.rewards.dispatch import GRADERS, async_rm, batched_async_rm, find_grader
from slime.samples.sample import Sample


def make_args(rm_type: str | None = None, **changes: Any) -> Namespace:
    return Namespace(**{"rm_type": rm_type, "custom_rm_path": None, "rm_url": None} | changes)


def grade(args: Namespace, sample: Sample) -> Any:
    return asyncio.run(async_rm(args, sample))


@pytest.mark.parametrize(
    ("rm_type", "response", "label", "reward"),
    [
        ("exact", "dcba<|end|>", "dcba", 1.0),
        ("math", "Answer: \\boxed{5}", "5", 1),
        ("math", "Answer: 5", "5", 0),
        ("boxed_math", "Answer: \\boxed{5}", "5", 1),
        ("boxed_math", "\\boxed{0}", 0, 1),
        ("boxed_math", "\\boxed{2^{10}}", "1024", 1),
        ("boxed_math", "5", "5", 0),
        ("boxed_exact", "so \\boxed{ab}", "ab", 1.0),
        ("boxed_gpqa", "so \\boxed{B}", "B", 1.0),
        ("boxed_f1", "so \\boxed{the cat}", "cat", 1.0),
        ("boxed_deepscaler", "so \\boxed{1/2}", 0.5, 1),
        ("deepscaler", "</think>\\boxed{3}", "3", 1),
        ("f1", "the cat", "cat", 1.0),
        ("gpqa", "The answer is (B).", "B", 1.0),
        (" math ", "\\boxed{1}", 1, 1),
    ],
)
def test_rm_types(rm_type: str, response: str, label: Any, reward: float) -> None:
    assert grade(make_args(rm_type), Sample(response=response, label=label)) == reward


def test_dapo_returns_a_dict_also_boxed() -> None:
    expected = {"score": 1.0, "acc": True, "pred": "5"}
    assert grade(make_args("dapo"), Sample(response="Answer: 5", label="5")) == expected
    assert grade(make_args("boxed_dapo"), Sample(response="\\boxed{5}", label="5")) == expected


def test_the_option_lists_exactly_these_graders() -> None:
    assert set(reward.GRADERS) == {*GRADERS, "remote_rm"}
    for rm_type in GRADERS:
        metadata = {"instruction_id_list": ["punctuation:no_comma"]}
        find_grader(rm_type)("", "x", metadata)
        find_grader(f"boxed_{rm_type}")("", "x", metadata)


@pytest.mark.parametrize(
    ("rm_type", "message"),
    [("mathh", "did you mean math?"), (None, "no grader is configured"), ("boxed_x", "known:")],
)
def test_unknown_types_are_configuration_errors(rm_type: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        grade(make_args(rm_type), Sample(label="1"))


def test_a_missing_label_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="--label-key"):
        grade(make_args("exact"), Sample(index=3))


def test_the_samples_own_type_wins() -> None:
    sample = Sample(response="a", label="a", metadata={"rm_type": "exact"})
    assert grade(make_args("math"), sample) == 1.0


def test_instructions_need_no_label() -> None:
    metadata = {"rm_type": "ifbench", "instruction_id_list": ["punctuation:no_comma"]}
    assert grade(make_args(), Sample(response="a, b", metadata=dict(metadata))) == 0.0
    assert grade(make_args("math"), Sample(response="a b", metadata=dict(metadata))) == 1.0


def test_what_cannot_be_graded_fails_with_its_reason() -> None:
    sample = Sample(index=7, response="a", metadata={"instruction_id_list": ["words:unheard_of"]})
    assert grade(make_args("ifbench"), sample) is None
    assert sample.status is Sample.Status.FAILED
    assert "sample 7: unknown instruction 'words:unheard_of'" in sample.metadata["failure"]


async def custom(args: Namespace, sample: Sample | list[Sample], **kwargs: Any) -> Any:
    if isinstance(sample, list):
        return [float(len(one.response)) for one in sample][: kwargs.get("only")]
    return -1.0


def custom_sync(args: Namespace, sample: Sample, **kwargs: Any) -> float:
    return 9.0


def test_custom_graders_sync_async_and_batched() -> None:
    args = make_args(custom_rm_path=f"{__name__}.custom")
    samples = [Sample(response="abc"), Sample(response="a")]
    assert grade(args, samples[0]) == -1.0
    assert grade(args, Sample(custom_rm_path=f"{__name__}.custom_sync")) == 9.0
    assert asyncio.run(batched_async_rm(args, samples)) == [3.0, 1.0]
    with pytest.raises(TypeError, match="a list of 2 rewards"):
        asyncio.run(batched_async_rm(args, samples, only=1))
    samples[0].custom_rm_path = f"{__name__}.custom_sync"
    assert asyncio.run(batched_async_rm(args, samples)) == [9.0, -1.0]


def test_two_hundred_gradings_at_once_give_no_false_zeros() -> None:
    samples = [
        Sample(response=f"\\boxed{{{i}/7}}", label=f"\\frac{{{i}}}{{7}}") for i in range(200)
    ]

    async def run() -> list[Any]:
        return await asyncio.wait_for(batched_async_rm(make_args("math"), samples), 20)

    assert asyncio.run(run()) == [1] * 200


def test_a_worker_thread_gives_the_same_score() -> None:
    cases = [("\\boxed{2^{10}}", "1024"), ("\\boxed{9**9**9}", "5/7"), ("\\boxed{0}", 0)]

    def scores() -> list[Any]:
        return [grade(make_args("math"), Sample(response=r, label=t)) for r, t in cases]

    from_thread: list[Any] = []
    worker = threading.Thread(target=lambda: from_thread.extend(scores()))
    worker.start()
    worker.join(20)
    assert from_thread == scores() == [1, 0, 1]


def test_a_remote_grader_is_asked_again_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_FIRST_PAUSE_SECONDS", 0.01)
    calls: list[dict] = []

    async def handle(request: web.Request) -> web.Response:
        calls.append(await request.json())
        if len(calls) % 3:
            return web.Response(status=503)
        return web.json_response({"score": 0.5})

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/grade", handle)
        async with TestServer(app) as server:
            url = str(server.make_url("/grade"))
            args = make_args("remote_rm", rm_url=url)
            sample = Sample(prompt="p", response="r", label="l")
            assert await async_rm(args, sample) == {"score": 0.5}
        assert calls == [{"prompt": "p", "response": "r", "label": "l"}] * 3
        with pytest.raises(remote.RemoteGraderError, match=f"{url}.*4 attempts"):
            await async_rm(args, Sample())

    asyncio.run(run())
