"""The trainer of one rank: load, train on a rollout, save, give the weights away.

Every method is collective: all ranks of the train group call it, in the same order.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from slime.hooks.loading import load_function
from slime.trainer import checkpoint, param_gather, step_dump
from slime.trainer.advantages import compute_advantages_and_returns
from slime.trainer.buckets import NamedTensor, buckets
from slime.trainer.checkpoint_content import TrainState
from slime.trainer.ci_checks import CiChecks
from slime.trainer.exchange import PerPosition, hear, tell
from slime.trainer.export import named_hf_tensors
from slime.trainer.forward_backward import forward_backward
from slime.trainer.hf_checkpoint_saver import save_hf_model_direct_to_path
from slime.trainer.hf_weights import load_hf_weights
from slime.trainer.memory_saver import make_memory_saver
from slime.trainer.optimizer import NonFiniteError, reset_states, step
from slime.trainer.policies import Policies
from slime.trainer.profiling import Profiler
from slime.trainer.regions import OPTIMIZER, REGIONS, WEIGHTS
from slime.trainer.rollout_tensors import RolloutBatch, prepare
from slime.trainer.routing_replay import RoutingReplay
from slime.trainer.stopwatch import Stopwatch
from slime.trainer.train_data_dump import save_debug_train_data
from slime.trainer.train_memory import build_in_regions

# Each has the whole weights: a run that skips on must not fill the disk.
_MAX_DUMPS = 3


class Trainer:
    """Model, optimizer and schedule of one rank. Make it after
    :func:`slime.trainer.initialize.init`.

    Attributes:
        role: "actor", or "critic" in :class:`slime.trainer.critic.CriticTrainer`.
        extra_state: what the loaded checkpoint held beside the model; empty for a fresh start.
        weight_version: number of rollouts trained on; the version of the weights
            :meth:`hf_weight_buckets` gives.
    """

    role = "actor"

    def __init__(self, args: Namespace) -> None:
        self.args = args
        self._profiler = Profiler(args, self.role)  # first: it may record what allocates memory
        self.memory = make_memory_saver(args)
        built = build_in_regions(args, self.memory, self.role)
        self.model, self.optimizer, self.scheduler = built
        param_gather.fetch_no_more(self.model, complete=False)
        self.replay = RoutingReplay(args, self.model, self.role)
        self.policies = Policies(args, self.model, self.replay)
        self.saver = checkpoint.CheckpointSaver(args)
        self.extra_state: dict[str, Any] = {}
        self.weight_version = 0
        self._checks = CiChecks(args, self.role)
        self._watch = Stopwatch()
        self._prepared: RolloutBatch = {}
        self._dumps = 0

    def load(self) -> int:
        """Restore from ``--load`` if it holds a checkpoint, else start from Hugging Face weights.

        ``--finetune`` takes the weights of ``--load`` and nothing else.

        Returns:
            The rollout id to start with: one after the checkpoint's, or 0.

        Raises:
            CheckpointError: a checkpoint is incomplete or does not fit the model.
        """
        args = self.args
        iteration = checkpoint.usable_iteration(
            args.load, args.ckpt_step, args.use_previous_checkpoint
        )
        if self.role == "actor":
            self.policies.load(self._load_weights, iteration)
        if iteration is None or args.finetune:
            fresh = iteration is None and not _is_hf_folder(args.load)
            self._load_weights(args.hf_checkpoint if fresh else args.load, args.ckpt_step)
            return 0
        with_optimizer = not args.no_load_optim
        state = self._state(with_optimizer)
        with self.memory.region(OPTIMIZER):
            self.extra_state = checkpoint.load(args, state, args.load, iteration)
        if not with_optimizer:
            self.optimizer.reload_model_params()
        self.weight_version = int(self.extra_state.get("weight_version", 0))
        return iteration + 1

    def _load_weights(self, path: str, step: int | None) -> None:
        """Weights only, of a Hugging Face folder or a torch_dist checkpoint (at ``step``)."""
        iteration = checkpoint.usable_iteration(path, step)
        if iteration is None:
            load_hf_weights(self.args, self.model, path)
        else:
            state = TrainState(self.model, None, None)
            checkpoint.load(self.args, state, path, iteration)
        # Half-precision training and the distributed optimizer keep their own fp32 copy.
        self.optimizer.reload_model_params()

    def _state(self, with_optimizer: bool = True) -> TrainState:
        return TrainState(
            self.model,
            self.optimizer if with_optimizer else None,
            self.scheduler if with_optimizer else None,
        )

    def parallel_config(self) -> dict[str, int | None]:
        """What the rollout side needs to distribute samples over ranks."""
        vpp = parallel_state.get_virtual_pipeline_model_parallel_world_size() or 1
        group = self.args.microbatch_group_size_per_vp_stage
        return {
            "dp_size": parallel_state.get_data_parallel_world_size(),
            "dp_rank": parallel_state.get_data_parallel_rank(),
            "cp_size": parallel_state.get_context_parallel_world_size(),
            "vpp_size": vpp,
            "microbatch_group_size_per_vp_stage": group or self.args.pipeline_model_parallel_size,
        }

    def train(self, rollout_id: int, rollout_data: RolloutBatch) -> dict[str, float]:
        """Train on one rollout: :meth:`prepare` and :meth:`train_prepared`."""
        self.prepare(rollout_data)
        return self.train_prepared(rollout_id)

    def prepare(self, rollout_data: RolloutBatch, values: PerPosition | None = None) -> PerPosition:
        """Log-probs, advantages and returns of a rollout, which :meth:`train_prepared` trains on.

        Args:
            rollout_data: this data-parallel rank's samples and schedule.
            values: the critic's, where there is one.

        Returns:
            With ``values`` the returns, for the critic: see :func:`slime.trainer.exchange.tell`.

        Raises:
            ValueError: the rollout data is inconsistent, or lacks what the arguments ask for.
        """
        data = self._begin(rollout_data)
        if values is not None:
            hear(data, "values", values)
        if self._wants_advantages():
            self.policies.add_log_probs(data, self.weight_version, self._watch)
            if parallel_state.is_pipeline_last_stage(ignore_virtual=True):
                compute_advantages_and_returns(self.args, data)
        self._prepared = data
        return tell(data, "returns") if values is not None else {}

    def _begin(self, rollout_data: RolloutBatch) -> RolloutBatch:
        """What comes before any work on a rollout; its data as tensors."""
        self._profiler.begin(self.weight_version)
        self._watch = Stopwatch(self._profiler.part)
        self.memory.needs(*REGIONS)
        self.saver.poll()
        self.replay.forget()
        if self.args.reset_optimizer_states:
            reset_states(self.optimizer)
        with self._watch.timed("prepare"):
            return prepare(self.args, rollout_data)

    def train_prepared(self, rollout_id: int) -> dict[str, float]:
        """One optimizer step per global batch of the schedule.

        Args:
            rollout_id: for messages.

        Returns:
            Metrics, equal on every rank: means over the steps; ``lr`` of the last step; ``tokens``
            over all ranks; ``skipped_steps``, when there were such; ``seconds/*`` of this rank.

        Raises:
            NonFiniteError: a loss or gradient is not finite; the weights keep their last finite
                state. With ``--no-check-for-nan-in-loss-and-grad`` the step is skipped instead.
        """
        self.memory.needs(*REGIONS)
        data, self._prepared = self._prepared, {}
        save_debug_train_data(self.args, rollout_id=rollout_id, rollout_data=data)
        with self._watch.timed("train"), param_gather.fetching(self.model):
            count = len(data["num_microbatches"])
            steps = [self._step(rollout_id, data, index) for index in range(count)]
        self._profiler.end()
        self.weight_version += 1
        self.policies.trained(rollout_id)
        done = [metrics for metrics in steps if metrics]
        metrics = {key: sum(s[key] for s in done) / len(done) for key in (done or [{}])[0]}
        metrics.update(steps=float(len(done)), tokens=self._count_tokens(data))
        metrics["lr"] = done[-1]["lr"] if done else self._learning_rate()
        if len(done) < count:
            metrics["skipped_steps"] = float(count - len(done))
        metrics.update({f"seconds/{name}": value for name, value in self._watch.seconds.items()})
        return metrics

    def skip_training(self) -> None:
        """Leave out the prepared rollout: a critic trains alone at first."""
        self._prepared = {}
        self.weight_version += 1

    def _wants_advantages(self) -> bool:
        return self.args.loss_type != "sft_loss" and self.args.compute_advantages_and_returns

    def _step(self, rollout_id: int, data: RolloutBatch, index: int) -> dict[str, float]:
        """The metrics of one optimizer step; none when it was skipped."""
        # Without a gradient, old moments and weight decay would move the weights.
        if data["global_num_tokens"][index] == 0 and self.args.loss_type != "custom_loss":
            if dist.get_rank() == 0:
                where = f"rollout {rollout_id}, step {index}"
                print(f"step skipped: every token is masked ({where})", flush=True)
            return {}
        if self.args.custom_megatron_before_train_step_hook_path:
            hook = load_function(self.args.custom_megatron_before_train_step_hook_path)
            hook(self.args, rollout_id, index, self.model, self.optimizer, self.scheduler)
        self.optimizer.zero_grad()
        with self.replay.training():
            metrics = forward_backward(self.args, self.model, data, index, self.replay)
        metrics["lr"] = self._learning_rate()
        try:
            if not math.isfinite(metrics["loss"]):
                raise NonFiniteError(f"the loss is {metrics['loss']}")
            metrics["grad_norm"] = step(self.optimizer)
            self._checks.after_step(rollout_id, index, metrics)
        except NonFiniteError as error:
            self._refuse(str(error), rollout_id, data, index)
            return {}
        self.scheduler.step(self._schedule_step(data["global_batch_sizes"][index]))
        return metrics

    def _schedule_step(self, batch_size: int) -> int | float:
        """How far a step moves the learning rate: a batch of half the usual size, half a step."""
        share = batch_size / (self.args.global_batch_size or batch_size or 1)
        return int(share) if share == int(share) else share

    def _refuse(self, what: str, rollout_id: int, data: RolloutBatch, index: int) -> None:
        """Dump a step that would spoil the weights, and stop the run unless it is to go on."""
        folder = Path(self.args.run_dir) / "non_finite" / f"{self.role}_{rollout_id}_step_{index}"
        samples = step_dump.samples_of(data, index)
        if self._dumps < _MAX_DUMPS:
            self._dumps += 1
            step_dump.write(folder, self.args, self.role, self.model, data, index)
            dist.barrier()  # the first rank that fails ends the others
        where = f"rollout {rollout_id}, step {index}, samples {samples} on this rank"
        message = f"{what} ({where}); python -m slime.trainer.replay_step {folder} runs it again"
        if self.args.check_for_nan_in_loss_and_grad:
            raise NonFiniteError(message)
        print(f"step skipped: {message}", flush=True)

    def _learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def _count_tokens(self, data: RolloutBatch) -> float:
        tokens = torch.tensor(float(sum(data["total_lengths"])), dtype=torch.float64)
        if parallel_state.get_data_parallel_world_size() > 1:
            tokens = tokens.to(self.optimizer.get_loss_scale().device)
            dist.all_reduce(tokens, group=parallel_state.get_data_parallel_group())
        return tokens.item()

    def save(self, rollout_id: int) -> None:
        """Write ``<save>/iter_<rollout_id>`` and move `latest` to it when it is complete.

        With ``--async-save`` that is later: in a following :meth:`train` or :meth:`save`, or in
        :meth:`finish_save`.

        Raises:
            CheckpointError: this or the last checkpoint could not be written.
        """
        if self.role == "actor":
            self.policies.save(rollout_id)
        self.memory.needs(WEIGHTS, OPTIMIZER)
        extra = {"rollout_id": rollout_id, "weight_version": self.weight_version}
        state = self._state(with_optimizer=not self.args.no_save_optim)
        self.saver.save(state, self.args.save, rollout_id, extra)

    def save_for_restart(self, root: str) -> None:
        """Complete the last checkpoint and write the present state under ``root``."""
        self.memory.needs(WEIGHTS, OPTIMIZER)
        self.saver.finish()
        extra = {"weight_version": self.weight_version}
        checkpoint.save(self.args, self._state(), root, 0, extra)

    def finish_save(self) -> None:
        """Wait until the last checkpoint is complete."""
        self.saver.finish()

    def hf_weight_buckets(self, max_bytes: int) -> Iterator[list[NamedTensor]]:
        """The weights as whole Hugging Face tensors on the CPU, on rank 0; empty lists on the
        others.

        The tensors may share memory with the model: use them before training goes on.
        """
        quantization = self.args.hf_architecture.get("quantization_config")
        self.memory.needs(WEIGHTS)
        tensors = named_hf_tensors(self.args, self.model, quantization)
        for bucket in buckets(tensors, max_bytes):
            yield [(name, tensor.cpu()) for name, tensor in bucket] if dist.get_rank() == 0 else []

    def save_hf(self, path: str | Path) -> None:
        """Export to a folder that `transformers` loads."""
        self.memory.needs(WEIGHTS)
        save_hf_model_direct_to_path(self.args, path, self.model)


def _is_hf_folder(path: str | None) -> bool:
    return path is not None and (Path(path) / "config.json").is_file()
