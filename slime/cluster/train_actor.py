"""One train rank as a Ray actor: a thin shell around `slime.trainer.trainer.Trainer`."""

import os
import socket
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray

from slime.cluster.children import log_memory_turn, logged, redirect_output
from slime.cluster.rollout_data import process_rollout_data
from slime.weights.engine_calls import EngineAddress
from slime.weights.errors import EnginesLeftBehind


@dataclass(frozen=True)
class WeightUpdate:
    """What came of an update: the seconds it took, and by address why an engine missed it."""

    seconds: float
    left_behind: dict[str, str]


PerPosition = dict[int, np.ndarray]
"""Per-token values by a sample's position in the rollout, between actor and critic."""


class TrainActor:
    """Created once per rank; torch and Megatron are imported only in `init`."""

    def __init__(self, args: Namespace, rank: int, log: str, role: str = "actor") -> None:
        redirect_output(Path(log))
        threads = str(args.train_threads)
        os.environ.update({"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads})
        os.environ.update({key: str(value) for key, value in (args.train_env_vars or {}).items()})
        self.args, self.rank, self.role = args, rank, role
        self._updater: Any = None

    def address(self) -> tuple[str, int]:
        """Where the ranks meet: this node's address and a port that is free now."""
        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return host, probe.getsockname()[1]

    @logged
    def init(self, master: tuple[str, int]) -> int:
        """Join the other ranks and load weights; returns the first rollout to run."""
        from slime.trainer.initialize import init

        init(
            self.args,
            rank=self.rank,
            world_size=self.args.world_size,
            master_addr=master[0],
            master_port=master[1],
        )
        # After init, which quiets Megatron's warnings.
        from slime.trainer.critic import CriticTrainer
        from slime.trainer.trainer import Trainer

        self.trainer = (CriticTrainer if self.role == "critic" else Trainer)(self.args)
        return self.trainer.load()

    def parallel_config(self) -> dict[str, int]:
        """This rank's place and the sizes of the parallel groups."""
        return self.trainer.parallel_config()

    @logged
    def train(self, rollout_id: int, batches: list[Any]) -> dict[str, float]:
        """Train on this rank's part of the rollout; metrics are the same on every rank."""
        started = time.monotonic()
        metrics = self.trainer.train(rollout_id, self._own(batches))
        seconds = {"perf/train_seconds": time.monotonic() - started}
        return {f"train/{name}": value for name, value in metrics.items()} | seconds

    @logged
    def prepare(self, batches: list[Any], told: list[Any]) -> PerPosition:
        """Prepare this rank's part of the rollout with the critic's values; gives the returns."""
        return self.trainer.prepare(self._own(batches), _merged(told))

    @logged
    def train_prepared(self, rollout_id: int) -> dict[str, float]:
        """Train on what :meth:`prepare` was given; metrics as of :meth:`train`."""
        started = time.monotonic()
        metrics = self.trainer.train_prepared(rollout_id)
        seconds = {"perf/train_seconds": time.monotonic() - started}
        return {f"train/{name}": value for name, value in metrics.items()} | seconds

    @logged
    def skip_training(self) -> dict[str, float]:
        """Leave out what :meth:`prepare` was given."""
        self.trainer.skip_training()
        return {}

    @logged
    def values(self, batches: list[Any]) -> PerPosition:
        """The critic's values of this rank's part of the rollout."""
        return self.trainer.values(self._own(batches))

    @logged
    def train_values(self, rollout_id: int, told: list[Any]) -> dict[str, float]:
        """Train the critic on the rollout of :meth:`values` with the actor's returns."""
        started = time.monotonic()
        metrics = self.trainer.train_values(rollout_id, _merged(told))
        seconds = {"perf/critic_train_seconds": time.monotonic() - started}
        return {f"critic/{name}": value for name, value in metrics.items()} | seconds

    def _own(self, batches: list[Any]) -> Any:
        """This rank's part. A list keeps Ray from fetching the other ranks' parts as arguments."""
        place = self.trainer.parallel_config()
        return process_rollout_data(self.args, batches, place["dp_rank"], place["dp_size"])

    @logged
    def update_weights(self, engines: list[EngineAddress], version: int) -> WeightUpdate:
        """Send the weights to the engines as ``version``."""
        started = time.monotonic()
        self.trainer.policies.sent(version)
        buckets = self.trainer.hf_weight_buckets(self.args.update_weight_buffer_size)
        left_behind: dict[str, str] = {}
        if self.rank == 0:
            if self._updater is None:
                from slime.weights.choose import make_updater

                node, host = ray.get_runtime_context().get_node_id(), self.address()[0]
                self._updater = make_updater(self.args, node, host)
            try:
                self._updater.update(engines, buckets, version)
            except EnginesLeftBehind as error:
                left_behind = error.reasons
        for _ in buckets:
            pass  # the gathering is collective
        return WeightUpdate(time.monotonic() - started, left_behind)

    @logged
    def save(self, rollout_id: int) -> None:
        """Write the checkpoint of ``rollout_id``."""
        self.trainer.save(rollout_id)

    @logged
    def save_for_restart(self, root: str) -> None:
        """Write all that a new process needs to go on where this one ends."""
        self.trainer.save_for_restart(root)

    @logged
    def finish_save(self) -> None:
        """Wait until the last checkpoint is complete."""
        self.trainer.finish_save()

    @logged
    def pause_memory(self, regions: list[str]) -> None:
        """Free GPU memory; see `slime.trainer.memory_saver`."""
        log_memory_turn("pause", regions)
        self.trainer.memory.pause(*regions)

    @logged
    def resume_memory(self, regions: list[str]) -> None:
        """Take GPU memory back."""
        log_memory_turn("resume", regions)
        self.trainer.memory.resume(*regions)

    @logged
    def save_hf(self, path: str) -> None:
        """Export the weights as a Hugging Face folder."""
        self.trainer.save_hf(path)


def _merged(told: list[Any]) -> PerPosition:
    """One mapping of what the ranks of the other role told."""
    return {place: value for part in ray.get(told) for place, value in part.items()}


class TrainGroup:
    """The ranks of one role, called together."""

    def __init__(self, ranks: list[Any]) -> None:
        self.ranks = ranks

    def call(self, method: str, *args: Any) -> list[Any]:
        """Calls in flight of ``method`` on every rank; `gather` waits for them."""
        return [rank.call(method, *args) for rank in self.ranks]
