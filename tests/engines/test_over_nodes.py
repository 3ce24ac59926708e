"""An engine over two nodes, both of which are this machine: SGLang's two processes of one rank."""

import os
import time

import psutil
import pytest
import torch.distributed as dist

from slime.arguments.topology import has_engine_over_nodes
from slime.engines.engine import State
from slime.engines.node_processes import NodeProcesses
from slime.weights.choose import make_updater
from slime.weights.distributed import DistributedWeightUpdater
from slime.weights.engine_calls import EngineAddress
from tests.engines.real_servers import (
    generate,
    largest_difference,
    make_args,
    make_model,
    running,
    save_model,
)

PROMPTS = [[5, 9, 3], list(range(2, 38))]
FLAGS = (
    *("--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2", "--num-gpus-per-node", "1"),
    *("--use-fault-tolerance", "--check-weight-update-equal"),
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """The engine is one of a trained model: after a restart it waits for weights."""
    work = tmp_path_factory.mktemp("servers")
    args = make_args(save_model(work / "model"), work, *FLAGS)
    args.debug_rollout_only = False
    with running(args) as started:
        yield started


@pytest.fixture(scope="module")
def updater(servers):
    """What a trainer of this run sends weights with."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    made = make_updater(servers.args)
    yield made
    made.close()
    dist.destroy_process_group()


def send(servers, updater, seed, version):
    model = make_model(seed)
    named = [(n, t) for n, t in model.state_dict().items() if n != "lm_head.weight"]
    (engine,) = servers.engines
    address = EngineAddress(engine.url, num_gpus=2, starts=engine.starts)
    updater.update([address], [named], version)
    servers.updated([engine.url], {})


def difference(servers, seed):
    answers = generate(servers.router_url, PROMPTS)
    model = make_model(seed)
    pairs = zip(PROMPTS, answers, strict=True)
    return max(largest_difference(model, prompt, answer) for prompt, answer in pairs)


def wait_for(condition, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def scheduler_of(process):
    """The one scheduler of a server's process."""
    children = psutil.Process(process.pid).children(recursive=True)
    (found,) = [child for child in children if "scheduler" in " ".join(child.cmdline())]
    return found


def family(process):
    """The processes of an engine and all that they spawned."""
    servers = [psutil.Process(part.pid) for part in process.parts]
    return servers + [c for server in servers for c in server.children(recursive=True)]


def is_gone(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_two_processes_serve_as_one_engine(servers):
    (engine,) = servers.engines
    assert has_engine_over_nodes(servers.args)
    assert isinstance(engine.process, NodeProcesses)
    first, second = engine.process.parts
    assert [part.name for part in (first, second)] == ["engine 0", "engine 0 node 1"]
    for number, part in enumerate((first, second)):
        assert scheduler_of(part).pid  # exactly one
        assert f"--node-rank {number}" in " ".join(psutil.Process(part.pid).cmdline())
    assert servers.routers[0].healthy() == {engine.url}
    assert difference(servers, seed=0) < 1e-5


def test_weights_come_by_a_group_of_the_trainer_and_both_ranks(servers, updater):
    assert isinstance(updater, DistributedWeightUpdater)
    send(servers, updater, seed=3, version=1)  # compares the checksums of both ranks
    assert difference(servers, seed=3) < 1e-5


@pytest.mark.parametrize("hurt", ["the second scheduler", "the first server"])
def test_a_part_that_dies_takes_the_engine_with_it_and_both_come_back(servers, updater, hurt):
    (engine,) = servers.engines
    old, url, starts = engine.process, engine.url, engine.starts
    mine = family(old)
    victim = {
        "the second scheduler": lambda: scheduler_of(old.parts[1]),
        "the first server": lambda: psutil.Process(old.parts[0].pid),
    }[hurt]()
    victim.kill()
    wait_for(lambda: engine.starts > starts)
    wait_for(lambda: engine.state is State.WAITING)
    assert engine.url == url and engine.starts == starts + 1
    wait_for(lambda: all(map(is_gone, mine)), 5.0)
    assert servers.routers[0].healthy() == set()
    # The trainer's group had the old engine in it.
    send(servers, updater, seed=4, version=1 + engine.starts)
    wait_for(lambda: engine.state is State.SERVING)
    assert servers.routers[0].healthy() == {url}
    assert difference(servers, seed=4) < 1e-5


def test_nothing_is_left(servers):
    mine = family(servers.engines[0].process)
    assert len(mine) > 4  # two servers, their schedulers, a detokenizer
    servers.stop()
    wait_for(lambda: all(map(is_gone, mine)), 5.0)
