"""Slots of the two roles in a real local Ray."""

import sys
from argparse import Namespace
from collections.abc import Iterator

import pytest
import ray

from slime.arguments.errors import ConfigError
from slime.cluster.placement import Node, Slots, check_engine_nodes, create_placement_groups


def args(**changed: object) -> Namespace:
    values = {
        "device": "cpu",
        "debug_rollout_only": False,
        "debug_train_only": False,
        "colocate": False,
        "world_size": 2,
        "critic_own_slots": 0,
        "rollout_external_engine_addrs": None,
        "rollout_num_gpus": 1,
        "ray_address": None,
    }
    return Namespace(**{**values, **changed})


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize(
    ("changed", "actor", "critic", "rollout"),
    [
        ({}, [0, 1], [0, 1], [2]),
        ({"colocate": True}, [0, 1], [0, 1], [0]),
        ({"debug_rollout_only": True}, [], [], [0]),
        ({"debug_train_only": True}, [0, 1], [0, 1], []),
        ({"world_size": 1, "critic_own_slots": 1}, [0], [1], [2]),
        ({"world_size": 1, "critic_own_slots": 1, "colocate": True}, [0], [1], [0]),
    ],
)
def test_slots(changed: dict, actor: list[int], critic: list[int], rollout: list[int]) -> None:
    slots = create_placement_groups(args(**changed))
    try:
        assert (slots["actor"].bundles, slots["rollout"].bundles) == (actor, rollout)
        assert slots["critic"].bundles == critic
        handle = ray.remote(Probe).options(**slots["rollout"].manager_options()).remote()
        assert ray.get(handle.alive.remote())
        held = [handle]  # all alive at once: the shares of a slot add up
        for role in ("actor", "critic"):
            for rank in range(len(slots[role].bundles)):
                held.append(ray.remote(Probe).options(**slots[role].train_options(rank)).remote())
        assert all(ray.get([handle.alive.remote() for handle in held], timeout=60))
    finally:
        ray.util.remove_placement_group(slots["actor"].group)


def test_a_cluster_that_is_too_small_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slime.cluster.placement._READY_SECONDS", 1)
    with pytest.raises(TimeoutError, match="needs 9 slots.*--actor-num-gpus-per-node"):
        create_placement_groups(args(world_size=8))


def slots(nodes: str) -> Slots:
    """Slots on machines with these letters."""
    places = [Node(letter, f"10.0.0.{ord(letter) - 96}") for letter in nodes]
    group, bundles = ray.util.placement_group([{"CPU": 0.001}]), list(range(len(nodes)))
    return Slots(group, bundles, bundles, "GPU", places)


@pytest.mark.parametrize(
    ("size", "per_node", "nodes", "wrong"),
    [
        (2, 8, "aabb", ""),
        (4, 2, "aabb", ""),
        (4, 2, "aaaa", ""),  # both halves on one machine
        (2, 2, "abbc", "engine 0 needs 2 GPUs .* 1 of 10.0.0.1, 1 of 10.0.0.2"),
        (4, 2, "abbb", "engine 0 needs 2 GPUs .* 1 of 10.0.0.1, 1 of 10.0.0.2"),
        (4, 4, "aabb", "engine 0 needs 4 GPUs .* 2 of 10.0.0.1, 2 of 10.0.0.2"),
        (4, 4, "aaaabbbc", "engine 1 needs 4 GPUs .* 3 of 10.0.0.2, 1 of 10.0.0.3"),
    ],
)
def test_an_engine_has_whole_machines(size: int, per_node: int, nodes: str, wrong: str) -> None:
    given = args(
        rollout_num_gpus=len(nodes),
        rollout_num_gpus_per_engine=size,
        num_gpus_per_node=per_node,
        sglang_models=[],
        prefill_num_servers=None,
        hf_checkpoint="m",
    )
    placed = slots(nodes)
    try:
        if wrong:
            with pytest.raises(ConfigError, match=wrong):
                check_engine_nodes(given, placed)
        else:
            check_engine_nodes(given, placed)
    finally:
        ray.util.remove_placement_group(placed.group)


class Probe:
    def alive(self) -> bool:
        return True
