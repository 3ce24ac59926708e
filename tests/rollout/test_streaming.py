"""Streamed responses through a real router and engine, and through connections that break."""

import asyncio
import contextlib
import functools
import itertools
import json
import re

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from slime.rollout import async_loop, http_client, sglang_rollout
from slime.rollout.sglang_streaming_rollout import generate_streaming
from slime.samples.sample import Sample
from tests.rollout.test_sglang_rollout import check_log_probs, params, source

Status = Sample.Status
PATH = "slime.rollout.sglang_streaming_rollout.generate_streaming"


def test_a_streamed_response_equals_one_in_one_piece(args):
    greedy = params(args, temperature=0.0, stop_token_ids=[20])
    for prompt in ("say a", "say b", "say h"):
        streamed, whole = (Sample(index=0, prompt=prompt) for _ in range(2))
        async_loop.run(generate_streaming(args, streamed, dict(greedy)))
        async_loop.run(sglang_rollout.generate(args, whole, dict(greedy)))
        assert streamed.rollout_log_probs == pytest.approx(whole.rollout_log_probs, abs=1e-5)
        first, second = streamed.to_dict(), whole.to_dict()
        for name in ("rollout_log_probs", "prefix_cache_info"):  # engine noise, what was cached
            del first[name], second[name]
        assert first == second


@pytest.mark.flags("--custom-generate-function-path", PATH)
def test_a_whole_rollout_by_streams(args):
    output = sglang_rollout.generate_rollout(args, 0, source(args))
    samples = [sample for group in output.samples for sample in group]
    assert [sample.index for sample in samples] == list(range(16))
    for sample in samples:
        assert sample.status in (Status.COMPLETED, Status.TRUNCATED)
        assert sample.reward is not None
        check_log_probs(sample)


@pytest.mark.flags(
    "--custom-generate-function-path",
    PATH,
    "--partial-rollout",
    "--rollout-max-response-len",
    "200",
)
def test_an_abort_keeps_what_came_and_it_is_continued(args):
    state = sglang_rollout.GenerateState(args)
    state.sampling_params["ignore_eos"] = True

    async def start_and_abort():
        state.submit_generate_tasks(source(args).get_samples(1))
        await asyncio.sleep(0.3)
        groups = await sglang_rollout.abort(args, rollout_id=0)
        state.reset()
        return groups

    (group,) = async_loop.run(start_and_abort())
    before = [list(sample.tokens) for sample in group]
    for sample in group:
        assert sample.status == Status.ABORTED and 0 < sample.response_length < 200
        check_log_probs(sample)
    async_loop.run(sglang_rollout.generate_and_rm_group(args, group, dict(state.sampling_params)))
    for sample, tokens in zip(group, before, strict=True):
        assert sample.tokens[: len(tokens)] == tokens
        assert sample.response_length == 200
        assert sum(end - start for _, start, end in sample.weight_version_spans) == 200
        check_log_probs(sample)


@pytest.mark.flags("--rollout-max-response-len", "200")
def test_a_cancelled_task_keeps_what_came(args):
    sample = Sample(index=0, prompt="say a")

    async def start_and_cancel():
        task = asyncio.create_task(generate_streaming(args, sample, params(args, ignore_eos=True)))
        while sample.response_length < 5:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async_loop.run(start_and_cancel())
    assert sample.status == Status.ABORTED
    assert 5 <= sample.response_length < 200
    assert sample.weight_version_spans == [("default", 0, sample.response_length)]
    # A token is a character, or a marker of the chat template: the model is random.
    assert len(re.sub(r"<\|\w+\|>", ".", sample.response)) == sample.response_length
    check_log_probs(sample)


@contextlib.asynccontextmanager
async def breaking_proxy(router, num_events):
    """Passes streams on, and closes the connection after so many events; notes the requests."""
    requests = []

    async def handle(request):
        body = await request.json()
        requests.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        post = functools.partial(ClientSession.post, url=router + "/generate", json=body)
        async with ClientSession() as session, post(session) as answer:
            left = num_events
            async for line in answer.content:
                await response.write(line)
                left -= line.startswith(b"data:")
                if left == 0:
                    request.transport.abort()
                    break
        return response

    app = web.Application()
    app.router.add_post("/generate", handle)
    async with TestServer(app) as server:
        yield server.port, requests


@pytest.mark.flags("--rollout-max-response-len", "30")
def test_a_connection_that_keeps_breaking_gives_each_token_once(args):
    router = f"http://127.0.0.1:{args.sglang_router_port}"
    whole, streamed = (Sample(index=0, prompt="say a") for _ in range(2))
    greedy = params(args, temperature=0.0, ignore_eos=True)
    async_loop.run(sglang_rollout.generate(args, whole, dict(greedy)))

    async def body():
        async with breaking_proxy(router, num_events=7) as (port, requests):
            args.sglang_router_port = port
            await generate_streaming(args, streamed, dict(greedy))
            return requests

    requests = async_loop.run(body())
    assert len(requests) > 2
    wanted = [request["sampling_params"]["max_new_tokens"] for request in requests]
    held = [len(request["input_ids"]) for request in requests]
    assert {new + length for new, length in zip(wanted, held, strict=True)} == {30 + held[0]}
    assert held == sorted(set(held))
    assert streamed.tokens == whole.tokens
    assert streamed.response == whole.response
    assert streamed.status == Status.TRUNCATED
    assert streamed.rollout_log_probs == pytest.approx(whole.rollout_log_probs, abs=1e-5)


def test_nobody_there_fails_the_sample_with_the_reason(args, monkeypatch):
    monkeypatch.setattr(http_client, "RETRY_SECONDS", 0.2)
    args.sglang_router_port = 1
    sample = Sample(index=7, prompt="say a")
    async_loop.run(generate_streaming(args, sample, params(args)))
    assert sample.status == Status.FAILED
    assert "the stream of sample 7 broke" in sample.metadata["failure"]


@pytest.mark.parametrize("cumulative", [True, False])
def test_events_in_both_forms_are_read_alike(args, cumulative):
    """What an engine sends with and without `--incremental-streaming-output`."""
    entries = [[-0.5 * i, 10 + i, None] for i in range(5)]
    cuts = [0, 1, 3, 5]  # several tokens may come at once

    async def handle(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for start, end in itertools.pairwise(cuts):
            first = 0 if cumulative else start
            meta_info = {
                "finish_reason": {"type": "stop", "matched": 1} if end == 5 else None,
                "completion_tokens": end,
                "prompt_tokens": 3,
                "weight_version": "4",
                "output_token_logprobs": entries[first:end],
            }
            event = {"text": "abcde"[first:end], "meta_info": meta_info}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def body():
        app = web.Application()
        app.router.add_post("/generate", handle)
        async with TestServer(app) as server:
            args.sglang_router_port = server.port
            return await generate_streaming(args, Sample(tokens=[5, 6, 7]), params(args))

    sample = async_loop.run(body())
    assert sample.tokens == [5, 6, 7, 10, 11, 12, 13, 14]
    assert sample.rollout_log_probs == [0.0, -0.5, -1.0, -1.5, -2.0]
    assert sample.response == "abcde"
    assert sample.status == Status.COMPLETED
    assert sample.weight_version_spans == [("4", 0, 5)]
