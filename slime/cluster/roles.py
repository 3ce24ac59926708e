"""Creates the actors of a run in their slots: the rollout manager and the train ranks."""

import os
from argparse import Namespace
from pathlib import Path

import ray

from slime.arguments.roles import args_of_role
from slime.cluster.children import CONTROL, Child, gather
from slime.cluster.placement import Slots
from slime.cluster.rollout_manager import RolloutManager
from slime.cluster.train_actor import TrainActor, TrainGroup


def create_rollout_manager(args: Namespace, slots: Slots) -> Child:
    """The rollout manager, on the node of its first engine slot; not yet started."""
    log = _log(args, "rollout_manager")
    # Several at once: to save, to pause and to evaluate while the next rollout is generated.
    options = slots.manager_options() | {"max_concurrency": 4}
    remote = ray.remote(concurrency_groups={CONTROL: 1})(RolloutManager)
    handle = remote.options(**options).remote(args, str(log), slots.gpu_ids, slots.nodes)
    return Child("rollout manager", handle, log)


def create_training_models(
    args: Namespace, slots: Slots, actor_cls: type | None = None, role: str = "actor"
) -> TrainGroup:
    """One actor per train rank of the role ("actor" or "critic"); not yet initialised."""
    remote = ray.remote(actor_cls or TrainActor)
    own, name = args_of_role(args, role), "critic" if role == "critic" else "train"
    ranks = []
    for rank in range(own.world_size):
        log = _log(args, f"{name}_rank_{rank}")
        handle = remote.options(**slots.train_options(rank)).remote(own, rank, str(log), role)
        ranks.append(Child(f"{name} rank {rank}", handle, log))
    return TrainGroup(ranks)


def start_training(group: TrainGroup) -> list:
    """Calls in flight that join the ranks and load their weights."""
    (master,) = gather([group.ranks[0].call("address")])
    return group.call("init", master)


def _log(args: Namespace, name: str) -> Path:
    return Path(os.path.abspath(args.run_dir)) / "logs" / f"{name}.log"
