"""Creates the actors of a run in their slots: the rollout manager and the train ranks."""

import os
from argparse import Namespace
from pathlib import Path

import ray

from slime.cluster.children import Child, gather
from slime.cluster.placement import Slots
from slime.cluster.rollout_manager import RolloutManager
from slime.cluster.train_actor import TrainActor, TrainGroup


def create_rollout_manager(args: Namespace, slots: Slots) -> Child:
    """The rollout manager, on the node of its first engine slot; not yet started."""
    log = _log(args, "rollout_manager")
    options = slots.manager_options()
    handle = ray.remote(RolloutManager).options(**options).remote(args, str(log), slots.gpu_ids)
    return Child("rollout manager", handle, log)


def create_training_models(
    args: Namespace, slots: Slots, actor_cls: type | None = None
) -> TrainGroup:
    """One actor per train rank; not yet initialised."""
    remote = ray.remote(actor_cls or TrainActor)
    ranks = []
    for rank in range(args.world_size):
        log = _log(args, f"train_rank_{rank}")
        handle = remote.options(**slots.train_options(rank)).remote(args, rank, str(log))
        ranks.append(Child(f"train rank {rank}", handle, log))
    return TrainGroup(ranks)


def start_training(group: TrainGroup) -> list:
    """Calls in flight that join the ranks and load their weights."""
    (master,) = gather([group.ranks[0].call("address")])
    return group.call("init", master)


def _log(args: Namespace, name: str) -> Path:
    return Path(os.path.abspath(args.run_dir)) / "logs" / f"{name}.log"
