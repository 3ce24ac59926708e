"""A real engine behind a real router is killed, frozen, left behind: it comes back in its place."""

import os
import signal
import time

import psutil
import pytest

from slime.engines.engine import State
from slime.engines.errors import EngineDied
from slime.engines.servers import RolloutServers
from slime.weights.engine_calls import EngineAddress
from slime.weights.errors import EnginesLeftBehind
from slime.weights.tensor import TensorWeightUpdater
from tests.engines.real_servers import generate, make_args, make_model

PROMPTS = [[5, 9, 3]]


@pytest.fixture(scope="module")
def kept(model_folder, tmp_path_factory):
    """Servers of a run that trains (so engines wait for weights), with fault tolerance."""
    flags = ("--use-fault-tolerance", "--rollout-health-check-interval", "1")
    flags += ("--rollout-health-check-timeout", "5")
    args = make_args(model_folder, tmp_path_factory.mktemp("kept"), *flags)
    args.debug_rollout_only = False
    servers = RolloutServers(args, args.run_dir)
    servers.start(progress=print)
    yield servers
    servers.stop()


def scheduler_of(servers):
    engine = psutil.Process(servers.engines[0].process.pid)
    return next(p for p in engine.children(recursive=True) if "scheduler" in "".join(p.cmdline()))


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def comes_back(servers, url, pid):
    """It is repaired, waits for weights behind a router that does not know it, and serves again."""
    engine = servers.engines[0]
    wait_for(lambda: engine.state is State.WAITING and engine.process.pid != pid)
    assert engine.url == url
    assert servers.check()  # not whole yet
    assert servers.routers[0].healthy() == set()
    assert servers.waiting() == servers.updatable() == [engine]
    servers.updated([url], {})
    assert engine.state is State.SERVING
    assert not servers.check()
    assert len(generate(servers.router_url, PROMPTS)) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_an_engine_comes_back_at_its_place_and_waits_for_weights(kept, how):
    engine = kept.engines[0]
    url, pid = engine.url, engine.process.pid
    os.kill(scheduler_of(kept).pid, how)
    comes_back(kept, url, pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_router_comes_back_with_its_engines(kept, how):
    router = kept.routers[0]
    url, pid = router.url, router.process.pid
    os.kill(pid, how)
    wait_for(lambda: router.process.pid != pid and router.answers())
    assert router.url == url
    pid = router.process.pid
    wait_for(lambda: not kept.check())
    wait_for(lambda: router.healthy() == {kept.engines[0].url}, 30)
    assert len(generate(kept.router_url, PROMPTS)) == 1
    assert router.process.pid == pid, "what a check found before is held against the new process"
    assert not kept.check()


def test_an_engine_left_behind_by_an_update_serves_no_more_until_it_is_caught_up(kept):
    engine = kept.engines[0]
    pid = engine.process.pid
    kept.updated([engine.url], {engine.url: "refused it"})
    assert engine.state is State.WAITING and kept.routers[0].healthy() == set()
    kept.updated([engine.url], {})
    assert engine.state is State.SERVING and engine.process.pid == pid


def test_an_engine_frozen_in_mid_update_is_given_up_and_started_again(kept):
    """Its end breaks the request that waits for it; that request alone would wait for longer."""
    engine = kept.engines[0]
    url, pid, starts = engine.url, engine.process.pid, engine.starts
    named = [(n, t) for n, t in make_model(seed=1).state_dict().items() if n != "lm_head.weight"]

    def buckets():
        yield named[:3]
        os.kill(scheduler_of(kept).pid, signal.SIGSTOP)
        yield named[3:]

    kept.pause_checks()
    updater = TensorWeightUpdater(node="here", timeout=600)
    with pytest.raises(EnginesLeftBehind) as error:
        updater.update([EngineAddress(url, node="here", takes_memory=True)], buckets(), version=1)
    updater.close()
    assert "did not answer /update_weights_from_tensor" in error.value.reasons[url]
    wait_for(lambda: engine.process.pid != pid)
    kept.resume_checks()
    kept.updated([url], error.value.reasons)
    comes_back(kept, url, pid)
    assert engine.starts == starts + 1


def test_an_engine_that_never_gets_well_ends_the_run(kept, monkeypatch):
    monkeypatch.setattr(kept.engines[0], "starts", 20)
    kept.engines[0].report("fails again and again")
    with pytest.raises(EngineDied, match="(?s)started 20 times.engine 0 fails again"):
        for _ in range(100):
            kept.check()
            time.sleep(0.1)
