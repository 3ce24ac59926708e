"""Where the train ranks and the engines of a run sit in the Ray cluster."""

from argparse import Namespace
from collections import Counter
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from slime.arguments.errors import ConfigError, Problem
from slime.arguments.topology import plan_models

_READY_SECONDS = 60
# A rank of the actor, one of the critic and the rollout manager may share a bundle.
_TRAIN_SHARE, _MANAGER_SHARE = 0.4, 0.2


@dataclass(frozen=True)
class Node:
    """A machine of the cluster: Ray's id of it, and the address that the others reach."""

    id: str
    address: str


@dataclass(frozen=True)
class Slots:
    """A role's share of a placement group: bundle indices ordered by node, then by GPU.

    ``gpu_ids`` are the devices behind the bundles on their nodes (empty on CPU), ``nodes`` Ray's id
    and the address of the node of each.
    """

    group: PlacementGroup
    bundles: list[int]
    gpu_ids: list[int]
    resource: str
    nodes: list[Node]

    def train_options(self, rank: int) -> dict[str, Any]:
        """Ray actor options of train rank ``rank``."""
        gpus = {"num_gpus": _TRAIN_SHARE} if self.resource == "GPU" else {}
        return {"num_cpus": _TRAIN_SHARE, **gpus, "scheduling_strategy": self._in_bundle(rank)}

    def manager_options(self) -> dict[str, Any]:
        """Ray actor options of the rollout manager: beside the first engine, without a GPU itself.

        The engines are its children and get their devices by ``gpu_ids``.
        """
        if not self.bundles:
            return {"num_cpus": 0}
        return {"num_cpus": _MANAGER_SHARE, "scheduling_strategy": self._in_bundle(0)}

    def _in_bundle(self, index: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(
            placement_group=self.group,
            placement_group_bundle_index=self.bundles[index],
            placement_group_capture_child_tasks=False,
        )


def create_placement_groups(args: Namespace) -> dict[str, Slots]:
    """Reserve the slots of every role: ``{"actor": Slots, "critic": Slots, "rollout": Slots}``.

    With ``--colocate`` the engines share the slots of training, and a critic has the actor's unless
    ``--critic-num-*`` gives it its own; with ``--debug-*-only`` a role has none.

    Raises:
        TimeoutError: the cluster has too few CPUs or GPUs; says what is asked and what there is.
    """
    resource = "GPU" if args.device == "cuda" else "CPU"
    train = 0 if args.debug_rollout_only else args.world_size
    without = args.debug_train_only or args.rollout_external_engine_addrs
    rollout = 0 if without else args.rollout_num_gpus
    trained = train + args.critic_own_slots
    total = max(trained, rollout) if args.colocate else trained + rollout
    bundle = {"GPU": 1, "CPU": 1} if resource == "GPU" else {"CPU": 1}
    group = placement_group([bundle] * total, strategy="PACK")
    ready, _ = ray.wait([group.ready()], timeout=_READY_SECONDS)
    if not ready:
        raise TimeoutError(
            f"the run needs {total} slots of {bundle}, the cluster has {ray.cluster_resources()}; "
            "ask for fewer with --actor-num-gpus-per-node or --rollout-num-gpus, or add nodes"
        )
    order = _ordered_bundles(group, total, resource)
    nodes = _nodes_of_bundles(group)
    bundles, gpu_ids = [index for index, _ in order], [gpu for _, gpu in order if gpu is not None]
    start = 0 if args.colocate else trained
    critic = slice(train, trained) if args.critic_own_slots else slice(train)
    parts = {
        "actor": slice(train),
        "critic": critic,
        "rollout": slice(start, start + rollout),
    }
    return {
        role: Slots(
            group,
            bundles[part],
            gpu_ids[part],
            resource,
            [nodes[bundle] for bundle in bundles[part]],
        )
        for role, part in parts.items()
    }


def check_engine_nodes(args: Namespace, slots: Slots) -> None:
    """Every engine's GPUs must be on one machine, or on as many whole ones as it is planned for.

    Raises:
        ConfigError: Ray has them elsewhere; says where.
    """
    problems = []
    for engine in (engine for model in plan_models(args) for engine in model.engines):
        for rank in range(engine.num_nodes):
            nodes = Counter(slots.nodes[engine.gpus_of_node(rank)])
            if len(nodes) > 1:
                found = ", ".join(f"{count} of {node.address}" for node, count in nodes.items())
                message = (
                    f"engine {engine.index} needs {engine.gpus_per_node} {slots.resource}s of one "
                    f"machine, and Ray gives it {found}"
                )
                remedy = "have so many free on each machine, and the trainer on machines of its own"
                problems.append(
                    Problem("--num-gpus-per-node", args.num_gpus_per_node, message, remedy)
                )
    if problems:
        raise ConfigError(problems)


def _nodes_of_bundles(group: PlacementGroup) -> dict[int, Node]:
    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    table = placement_group_table(group)
    return {
        bundle: Node(node_id, addresses[node_id])
        for bundle, node_id in table["bundles_to_node_id"].items()
    }


def _ordered_bundles(
    group: PlacementGroup, total: int, resource: str
) -> list[tuple[int, int | None]]:
    """(bundle index, GPU id) sorted so that neighbours share a node and adjacent GPUs; this node is
    the first."""
    here = ray.get_runtime_context().get_node_id()
    if resource == "CPU":
        nodes = _nodes_of_bundles(group)
        order = sorted(nodes, key=lambda i: (nodes[i].id != here, nodes[i].id, i))
        return [(index, None) for index in order]

    @ray.remote(num_gpus=1, num_cpus=0)
    def where() -> tuple[bool, str, str, int]:
        node = ray.get_runtime_context().get_node_id()
        return node != here, ray.util.get_node_ip_address(), node, int(ray.get_gpu_ids()[0])

    places = ray.get(
        [
            where.options(
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)
            ).remote()
            for index in range(total)
        ]
    )
    order = sorted(range(total), key=lambda index: places[index])
    return [(index, places[index][-1]) for index in order]
