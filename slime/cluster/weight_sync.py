"""Keeps the engines at the trainer's weights: after training, and when one was started again."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

import ray

from slime.cluster.children import Call, Child, gather
from slime.cluster.gpu_turns import GpuTurns
from slime.cluster.train_actor import TrainGroup
from slime.weights.engine_calls import EngineAddress

_POLL_SECONDS = 1.0
Wait = Callable[[list[Call]], list[Any]]


class WeightSync:
    """Between one rollout manager and one train group (None in `--debug-rollout-only`).

    `wait` and `wait_for_ranks` give the results of calls in flight to the one and to the other.
    """

    def __init__(
        self,
        args: Namespace,
        manager: Child,
        train: TrainGroup | None,
        turns: GpuTurns,
        wait: Wait = gather,
        wait_for_ranks: Wait = gather,
    ) -> None:
        self._manager, self._train, self._turns = manager, train, turns
        self._gather, self._gather_ranks = wait, wait_for_ranks
        self._tolerant = args.use_fault_tolerance
        self._version = 0

    def trained(self, version: int) -> None:
        """The trainer has these weights now; the engines get them with the next `update`."""
        self._version = version

    def update(self, version: int) -> float:
        """Bring all engines to the trainer's weights; returns the seconds it took.

        With `--use-fault-tolerance` an engine that fails meanwhile is out of service until `wait`
        or the next update has caught it up.

        Raises:
            RunFailed: an engine missed the update, without `--use-fault-tolerance`.
        """
        self._version = version
        self._turns.to_weight_update()
        (engines,) = self._gather([self._manager.ask("updatable_engines")])
        seconds = self._send(engines)
        self._turns.to_rollout()
        return seconds

    def wait(self, call: Call, trainer_is_idle: bool = True) -> Any:
        """The result of a call to the manager. Engines that were started again meanwhile get the
        present weights, so that they can serve it; only an idle trainer has them to give."""
        if self._tolerant and self._train is not None and trainer_is_idle:
            while not ray.wait([call.ref], timeout=_POLL_SECONDS)[0]:
                (waiting,) = self._gather([self._manager.ask("waiting_engines")])
                if waiting:
                    self._turns.to_late_update()
                    self._send(waiting)
                    self._turns.to_rollout()
        (result,) = self._gather([call])
        return result

    def _send(self, engines: Sequence[EngineAddress]) -> float:
        if not engines or self._train is None:
            return 0.0
        updates = self._gather_ranks(self._train.call("update_weights", engines, self._version))
        left_behind: dict[str, str] = {}
        for update in updates:
            left_behind |= update.left_behind
        urls = [engine.url for engine in engines]
        self._gather([self._manager.ask("weights_updated", urls, left_behind)])
        return max(update.seconds for update in updates)
