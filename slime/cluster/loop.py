"""The synchronous training loop: generate, train, save, update weights, evaluate, again."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slime.cluster.children import Call, Child, gather
from slime.cluster.gpu_turns import CRITIC, GpuTurns
from slime.cluster.periodic import should_run_periodic_action
from slime.cluster.rollout_manager import RolloutResult
from slime.cluster.train_actor import TrainGroup
from slime.cluster.train_roles import train_roles
from slime.cluster.weight_sync import WeightSync
from slime.tracking.report import RunReport


@dataclass
class Loop:
    """All a loop needs; the parts that a debug mode leaves out are None or empty.

    The engines' weight version is the number of rollouts trained on, so it survives a resume.
    """

    args: Namespace
    report: RunReport
    manager: Child
    train: TrainGroup | None
    has_engines: bool
    start_rollout_id: int
    num_rollout: int
    num_rollout_per_epoch: int | None
    turns: GpuTurns
    critic: TrainGroup | None = None
    saved: int | None = field(default=None)

    def __post_init__(self) -> None:
        self.weights = WeightSync(
            self.args, self.manager, self.train, self.turns, self._wait, self._wait_for_ranks
        )

    def run(self) -> None:
        """Run all rollouts that are left."""
        first = self.start_rollout_id
        self._update_weights(first)
        if self._evaluates() and first == 0 and not self.args.skip_eval_before_train:
            self._evaluate(first, step=0)
        for rollout_id in range(first, self.num_rollout):
            self._step(rollout_id)
        self._finish()

    def _step(self, rollout_id: int) -> None:
        with self.report.phase("rollout"):
            result = self._generate(rollout_id)
        metrics = dict(result.metrics)
        if self.train:
            with self.report.phase("train"):
                metrics |= train_roles(
                    self.args,
                    self.train,
                    self.critic,
                    rollout_id,
                    result,
                    self.turns,
                    self._wait_for_ranks,
                )
            self.weights.trained(rollout_id + 1)
            if self._due(rollout_id, self.args.save_interval) and self.args.save:
                self._save(rollout_id)
            if (rollout_id + 1 - self.start_rollout_id) % self.args.update_weights_interval == 0:
                metrics["perf/update_weights_seconds"] = self._update_weights(rollout_id + 1)
            else:
                self.turns.to_rollout()
        self.report.rollout(rollout_id, metrics)
        if self._evaluates() and self._due(rollout_id, self.args.eval_interval):
            self._evaluate(rollout_id, step=rollout_id + 1)

    def _generate(self, rollout_id: int) -> RolloutResult:
        return self.weights.wait(self.manager.call("generate", rollout_id, rollout_id))

    def _wait(self, calls: list[Call], timeout: float | None = None) -> list[Any]:
        return gather(calls, timeout, self._beside())

    def _beside(self) -> Sequence[Call]:
        """Calls in flight whose failure ends the run, whatever is being waited for."""
        return ()

    def _wait_for_ranks(self, calls: list[Call]) -> list[Any]:
        """As `_wait`; a train rank that is frozen ends the run after a while."""
        return self._wait(calls, self.args.train_stall_timeout)

    def _finish(self) -> None:
        last = self.num_rollout - 1
        if not self.train or last < self.start_rollout_id:
            return
        if self.args.save and self.saved != last:
            self._save(last)
        if self.saved is not None:
            if self.args.async_save or self.args.release_train:
                self.turns.to_training()
            with self.report.phase("save"):
                self._wait_for_ranks(self.train.call("finish_save"))
            self.report.wrote("checkpoint", Path(self.args.save))
        if self.args.save_hf:
            path = str(self.args.save_hf).format(rollout_id=last)
            self.turns.to_training()
            with self.report.phase("save"):
                self._wait_for_ranks(self.train.call("save_hf", path))
            self.report.wrote("HF export", Path(path))

    def _save(self, rollout_id: int) -> None:
        assert self.train
        with self.report.phase("save"):
            # The cursor first: the checkpoint's `latest` file, written last, makes both valid.
            self._wait([self.manager.call("save", rollout_id)])
            if self.critic:
                self.turns.to_training(CRITIC)
                self._wait_for_ranks(self.critic.call("save", rollout_id))
                self._wait_for_ranks(self.critic.call("finish_save"))
            self.turns.to_training()
            self._wait_for_ranks(self.train.call("save", rollout_id))
        if not self.args.async_save or self.saved is not None:  # else it is not complete yet
            self.report.wrote("checkpoint", Path(self.args.save))
        self.saved = rollout_id

    def _update_weights(self, version: int) -> float:
        if not self.train or not self.has_engines:
            return 0.0
        with self.report.phase("weights"):
            return self.weights.update(version)

    def _evaluate(self, rollout_id: int, step: int) -> None:
        with self.report.phase("eval"):
            metrics = self.weights.wait(self.manager.call("evaluate", rollout_id))
        self.report.evaluation(step, metrics)

    def _evaluates(self) -> bool:
        has_sets = bool(self.args.eval_prompt_data or self.args.eval_config)
        return has_sets and self.has_engines

    def _due(self, rollout_id: int, interval: int | None) -> bool:
        return should_run_periodic_action(
            rollout_id, interval, self.num_rollout_per_epoch, self.num_rollout
        )


def first_rollout(args: Namespace, loaded: list[Any]) -> int:
    """Where to start: ``--start-rollout-id``, else after the checkpoint (the ranks must agree)."""
    starts = set(loaded) or {0}
    assert len(starts) == 1, f"train ranks loaded different checkpoints: {sorted(starts)}"
    return args.start_rollout_id if args.start_rollout_id is not None else starts.pop()
