"""The network between a router and its engine is cut in the middle of requests, between two network
namespaces: nothing hangs, nothing is lost without a reason, and the engine comes back."""

import asyncio
import os
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from slime.engines.engine import State
from slime.engines.errors import EngineDied
from slime.engines.host import EngineHost
from slime.engines.servers import RolloutServers
from slime.rollout import http_client
from slime.rollout.generation import generate
from slime.rollout.http_client import set_liveness_check
from slime.rollout.sglang_streaming_rollout import generate_streaming
from slime.samples.sample import Sample
from tests.engines.real_servers import make_args, save_model
from tests.faults import namespaces
from tests.faults.namespaces import Cable

TOKENS = 240
COMPLETE = (Sample.Status.TRUNCATED, TOKENS, {})  # all the tokens that were asked for


class FarHost(EngineHost):
    """Starts engines at the far end of the cable."""

    def __init__(self, args: Namespace, cable: Cable) -> None:
        super().__init__(args, Path(args.run_dir) / "logs", cable.far_address, "far")
        self._spawner.submit(namespaces.enter, cable.far).result()

    def free_ports(self, count: int, preferred: int | None = None) -> list[int]:
        return self._spawner.submit(super().free_ports, count, preferred).result()


@pytest.fixture(scope="module")
def cable() -> Iterator[Cable]:
    """The test itself, and the router with it, is at the near end."""
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.cable(f"slime-{os.getpid()}") as cable, namespaces.inside(cable.near):
        yield cable


@pytest.fixture(scope="module")
def start(
    cable: Cable, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., RolloutServers]]:
    """Servers with the engine at the far end and fast health checks."""
    model = save_model(tmp_path_factory.mktemp("model"))
    started: list[RolloutServers] = []

    def start(*flags: str) -> RolloutServers:
        fast = ("--rollout-health-check-interval", "1", "--rollout-health-check-timeout", "3")
        args = make_args(model, tmp_path_factory.mktemp("servers"), *fast, *flags)
        servers = RolloutServers(args, args.run_dir, hosts=[FarHost(args, cable)])
        started.append(servers)
        servers.start(progress=print)
        return servers

    yield start
    for servers in started:
        set_liveness_check(servers.router_url, None)
        servers.stop()


@pytest.fixture(scope="module")
def unkept(start: Callable[..., RolloutServers]) -> RolloutServers:
    return start()


class Requests:
    """Samples that are generated in threads; `failure` is what one raised."""

    def __init__(self, args: Namespace) -> None:
        self._args = args
        self._threads: list[threading.Thread] = []
        self.samples: list[Sample] = []
        self.failure: BaseException | None = None

    def send(self, function: Callable) -> Sample:
        index = len(self.samples)
        sample = Sample(index=index, prompt="a", tokens=[5, 9, index])
        self.samples.append(sample)
        thread = threading.Thread(target=self._generate, args=(function, sample), daemon=True)
        self._threads.append(thread)
        thread.start()
        return sample

    def _generate(self, function: Callable, sample: Sample) -> None:
        async def run() -> None:
            params = {"max_new_tokens": TOKENS, "ignore_eos": True, "temperature": 1.0}
            try:
                await function(self._args, sample, params)
            finally:
                await http_client.close()

        try:
            asyncio.run(run())
        except EngineDied as error:
            self.failure = error

    def outcomes(self) -> list[tuple[Sample.Status, int, dict]]:
        """Of all, when they have ended."""
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a request hangs"
        return [(s.status, s.response_length, s.metadata) for s in self.samples]


def send_and_cut(servers: RolloutServers, cable: Cable) -> Requests:
    """A streamed request and one that is not; the cable is cut when they have begun."""
    sent = Requests(servers.args)
    streamed = sent.send(generate_streaming)
    sent.send(generate)
    wait_for(lambda: streamed.response_length >= 5)
    control(servers, "/pause_generation", {"mode": "retract"})  # they do not end by themselves
    cable.cut()
    assert streamed.response_length < TOKENS
    return sent


def control(servers: RolloutServers, path: str, body: dict) -> None:
    requests.post(servers.engines[0].url + path, json=body, timeout=30).raise_for_status()


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_requests_are_given_up_with_a_reason_or_answered_when_the_network_is_back(
    unkept, cable, monkeypatch
):
    """Nobody repairs anything, and nobody tells the requests that something is wrong."""
    monkeypatch.setattr(http_client, "RETRY_SECONDS", 4.0)
    held = send_and_cut(unkept, cable)
    lost = Requests(unkept.args)
    lost.send(generate)
    lost.send(generate_streaming)
    for status, length, metadata in lost.outcomes():
        assert (status, length) == (Sample.Status.FAILED, 0)
        assert "HTTP 5" in metadata["failure"]
    assert "failed" in lost.samples[0].metadata["failure"]
    assert "broke" in lost.samples[1].metadata["failure"]
    cable.mend()
    wait_for(lambda: unkept.routers[0].healthy() == set(unkept.engine_urls))
    control(unkept, "/continue_generation", {})
    assert held.outcomes() == [COMPLETE, COMPLETE]
    after = Requests(unkept.args)
    after.send(generate)
    assert after.outcomes() == [COMPLETE]


def test_without_fault_tolerance_an_unreachable_engine_ends_the_run(unkept, cable):
    set_liveness_check(unkept.router_url, unkept.check_responds)
    sent = send_and_cut(unkept, cable)
    wait_for(lambda: sent.failure is not None)
    sent.outcomes()
    assert "engine 0 runs but does not respond" in str(sent.failure)
    cable.mend()


def test_an_unreachable_engine_is_taken_out_and_serves_again_when_the_network_is_back(start, cable):
    servers = start("--use-fault-tolerance")
    set_liveness_check(servers.router_url, servers.check_responds)
    engine, router = servers.engines[0], servers.routers[0]
    url, pid = engine.url, engine.process.pid
    sent = send_and_cut(servers, cable)
    wait_for(lambda: engine.state is State.STARTING)
    assert router.healthy() == set()
    sent.send(generate)
    wait_for(lambda: engine.process.pid != pid)
    assert engine.state is State.STARTING and servers.check()
    cable.mend()
    wait_for(lambda: engine.state is State.SERVING)
    assert engine.url == url and router.healthy() == {url}
    assert sent.outcomes() == [COMPLETE] * 3
    assert not servers.check()
