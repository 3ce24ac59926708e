"""--release-train: end the train processes while engines generate, and start them anew.

Frees all that a process holds, host memory too, for the price of a checkpoint and a start per
rollout. The state goes through `<run-dir>/released`.
"""

import copy
from argparse import Namespace
from pathlib import Path

import ray

from slime.cluster.children import gather
from slime.cluster.placement import Slots
from slime.cluster.roles import create_training_models, start_training
from slime.cluster.train_actor import TrainGroup


class Release:
    """Of the actor's ranks; the group stays the same object, with new ranks."""

    def __init__(self, args: Namespace, slots: Slots, group: TrainGroup) -> None:
        self._slots, self._group = slots, group
        self._root = str(Path(args.run_dir, "released").absolute())
        self._args = copy.copy(args)
        self._args.load, self._args.ckpt_step, self._args.finetune = self._root, None, False
        self._released = False

    def release(self) -> None:
        """Write the trainer's state and end its processes."""
        if self._released:
            return
        gather(self._group.call("save_for_restart", self._root))
        for rank in self._group.ranks:
            ray.kill(rank.handle)
        self._released = True

    def restart(self) -> None:
        """Start the processes again, with that state."""
        if not self._released:
            return
        group = create_training_models(self._args, self._slots)
        gather(start_training(group))
        self._group.ranks[:] = group.ranks
        self._released = False
