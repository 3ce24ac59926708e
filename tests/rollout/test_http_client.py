"""The client against a real HTTP server that misbehaves."""

import asyncio
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from slime.engines.errors import EngineDied
from slime.engines.ports import free_ports
from slime.rollout import http_client
from slime.rollout.errors import RolloutError


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch):
    monkeypatch.setattr(http_client, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(http_client, "_LONGEST_PAUSE_SECONDS", 0.04)
    monkeypatch.setattr(http_client, "_liveness_checks", {})


def against(handler, call):
    """Run `await call(url)` against a server with one handler; returns result and requests."""

    async def body():
        requests = []

        async def handle(request):
            requests.append((request, await request.read()))
            return handler(len(requests))

        app = web.Application()
        app.router.add_route("*", "/x", handle)
        async with TestServer(app) as server:
            try:
                return await call(str(server.make_url("/x"))), requests
            finally:
                await http_client.close()

    return asyncio.run(body())


def test_post_sends_and_returns_json():
    answer, requests = against(
        lambda count: web.json_response({"n": count}),
        lambda url: http_client.post(url, {"a": [1, 2]}, headers={"x-smg-routing-key": "s1"}),
    )
    assert answer == {"n": 1}
    request, content = requests[0]
    assert content == b'{"a":[1,2]}'
    assert request.headers["x-smg-routing-key"] == "s1"
    assert request.content_type == "application/json"


def test_an_empty_answer_is_none_and_get_works():
    assert against(lambda count: web.Response(), http_client.get)[0] is None


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_passing_failures_are_retried(status):
    answer, requests = against(
        lambda count: web.json_response("ok") if count == 4 else web.Response(status=status),
        lambda url: http_client.post(url, {}),
    )
    assert answer == "ok"
    assert len(requests) == 4


def test_a_refusal_is_not_retried_and_its_reason_is_shown():
    refused = []

    async def call(url):
        with pytest.raises(RolloutError, match="HTTP 400: prompt too long"):
            await http_client.post(url, {})
        refused.append(url)

    _, requests = against(lambda count: web.Response(status=400, text="prompt too long"), call)
    assert len(requests) == 1
    assert refused


def test_retries_are_bounded_in_number():
    async def call(url):
        with pytest.raises(RolloutError, match="failed 6 times .* HTTP 503"):
            await http_client.post(url, {}, max_retries=5)

    _, requests = against(lambda count: web.Response(status=503), call)
    assert len(requests) == 6


def test_retries_are_bounded_in_time(monkeypatch):
    monkeypatch.setattr(http_client, "RETRY_SECONDS", 0.3)
    (port,) = free_ports(1)  # nobody listens

    async def body():
        with pytest.raises(RolloutError, match="ClientConnectorError"):
            await http_client.post(f"http://127.0.0.1:{port}/generate", {}, max_retries=10**6)
        await http_client.close()

    started = time.monotonic()
    asyncio.run(body())
    assert 0.1 < time.monotonic() - started < 3


def test_a_dead_engine_ends_the_retries_at_once():
    def check():
        raise EngineDied("engine 0 was killed")

    async def call(url):
        http_client.set_liveness_check(url, check)
        with pytest.raises(EngineDied, match="engine 0 was killed"):
            await http_client.post(url, {})

    _, requests = against(lambda count: web.Response(status=503), call)
    assert len(requests) == 1


@pytest.mark.parametrize("dies", [False, True])
def test_liveness_is_checked_while_an_answer_is_outstanding(dies, monkeypatch):
    """A frozen engine keeps the connection open: only the check can tell it from a slow one."""
    monkeypatch.setattr(http_client, "_LIVENESS_SECONDS", 0.02)
    checks = []

    def check():
        checks.append(time.monotonic())
        if dies and len(checks) == 3:
            raise EngineDied("engine 0 runs but does not respond")

    async def body():
        async def handle(request):
            await asyncio.sleep(600 if dies else 0.5)
            return web.json_response("slow")

        app = web.Application()
        app.router.add_post("/x", handle)
        async with TestServer(app) as server:
            url = str(server.make_url("/x"))
            http_client.set_liveness_check("http://127.0.0.1:1/other", pytest.fail)  # another run's
            http_client.set_liveness_check(url, check)
            try:
                if not dies:
                    assert await http_client.post(url, {}) == "slow"
                    return
                with pytest.raises(EngineDied, match="does not respond"):
                    await http_client.post(url, {})
            finally:
                await http_client.close()

    asyncio.run(body())
    assert len(checks) == 3 if dies else len(checks) > 3


def test_connections_are_kept_and_belong_to_their_loop():
    seen = set()

    async def call(url):
        for _ in range(3):
            await http_client.get(url)

    for _ in range(2):  # two event loops, one after the other
        _, requests = against(lambda count: web.json_response(1), call)
        peers = {request.transport and request.remote for request, _ in requests}
        seen |= peers
        assert len({request.protocol for request, _ in requests}) == 1
