"""Engines on two nodes: real ones, on a real Ray with a second raylet on this machine."""

import os
import secrets
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from slime.cluster.engine_hosts import RemoteHost, hosts_of
from slime.cluster.placement import Node, create_placement_groups
from slime.engines.errors import EngineDied
from slime.engines.servers import RolloutServers
from slime.weights.engine_calls import EngineAddress
from slime.weights.tensor import TensorWeightUpdater
from tests.engines.real_servers import (
    generate,
    largest_difference,
    make_args,
    make_model,
    save_model,
)

PROMPT = [5, 9, 3]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, namespace="test")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def slots_of_two_engines() -> list[Node]:
    args = Namespace(
        device="cpu",
        debug_rollout_only=True,
        debug_train_only=False,
        rollout_external_engine_addrs=None,
        colocate=False,
        world_size=0,
        critic_own_slots=0,
        rollout_num_gpus=2,
    )
    return create_placement_groups(args)["rollout"].nodes


def test_each_node_runs_its_engines_and_a_lost_node_is_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    nodes = slots_of_two_engines()
    assert len({node.id for node in nodes}) == 2
    args = make_args(save_model(tmp_path / "model"), tmp_path, "--rollout-num-gpus", "2")
    hosts = hosts_of(args, tmp_path / "logs", nodes)
    remote = [index for index, host in enumerate(hosts) if isinstance(host, RemoteHost)]
    assert len(remote) == 1
    servers = RolloutServers(args, tmp_path, hosts=hosts)
    servers.start(progress=print)
    try:
        updater, new = TensorWeightUpdater(node=nodes[1 - remote[0]].id), make_model(seed=5)
        named = [(n, t) for n, t in new.state_dict().items() if n != "lm_head.weight"]
        engines = [EngineAddress(e.url, 1, e.node, True) for e in servers.engines]
        updater.update(engines, [named], version=1)
        for engine in servers.engines:
            (answer,) = generate(engine.url, [PROMPT])
            assert largest_difference(new, PROMPT, answer) < 1e-5
        assert len(generate(servers.router_url, [PROMPT] * 4)) == 4
        assert not servers.check()
        (worker,) = list(cluster.worker_nodes)
        cluster.remove_node(worker, allow_graceful=False)
        with pytest.raises(EngineDied, match="which ran engines, is gone"):
            for _ in range(300):
                servers.check()
                time.sleep(0.1)
    finally:
        servers.stop()
