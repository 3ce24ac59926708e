"""The other policies beside the one that trains: reference, teacher, old actor; their log-probs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from megatron.core.distributed import DistributedDataParallel

from slime.hooks.loading import load_function
from slime.trainer import checkpoint
from slime.trainer.checkpoint_content import TrainState
from slime.trainer.checkpoint_files import latest_iteration
from slime.trainer.forward_backward import forward_outputs
from slime.trainer.old_actor import OldActors
from slime.trainer.response_log_probs import log_probs_function
from slime.trainer.rollout_tensors import RolloutBatch
from slime.trainer.routing_replay import RoutingReplay
from slime.trainer.stopwatch import Stopwatch
from slime.trainer.weight_snapshots import WeightSnapshots


class Policies:
    """Snapshots that take the model's place while log-probs are computed."""

    def __init__(
        self, args: Namespace, model: list[DistributedDataParallel], replay: RoutingReplay
    ) -> None:
        self._args, self._model, self._replay = args, model, replay
        self.snapshots = WeightSnapshots(model)
        self._old_actors = OldActors(self.snapshots)

    def load(self, load_weights: Callable[[str, int | None], None], iteration: int | None) -> None:
        """Take the reference's and a Megatron teacher's weights, by ``load_weights(path, step)``.

        The model is left with the last weights loaded.

        Args:
            iteration: the checkpoint of ``--load`` from which the run goes on, with its reference
                if that was renewed.
        """
        args = self._args
        if args.use_reference:
            renewed = (
                iteration is not None and not args.finetune and self._saved_reference(args.load)
            )
            if renewed and latest_iteration(renewed) is not None:
                load_weights(str(renewed), iteration)
            else:
                load_weights(args.ref_load or args.hf_checkpoint, args.ref_ckpt_step)
            self.snapshots.take("ref")
        if args.use_opd and args.opd_type == "megatron":
            load_weights(args.opd_teacher_load, args.opd_teacher_ckpt_step)
            self.snapshots.take("teacher")

    def sent(self, version: int) -> None:
        """The engines have the present weights as ``version``."""
        if self._args.keep_old_actor:
            self._old_actors.sent(version)

    def save(self, rollout_id: int) -> None:
        """Write a reference that is renewed on the way beside the policy's checkpoint."""
        root = self._saved_reference(self._args.save)
        if root is not None:
            with self.snapshots.using("ref"):
                state = TrainState(self._model, None, None)
                checkpoint.save(self._args, state, root, rollout_id, {})

    def _saved_reference(self, root: str) -> Path | None:
        renewed = self._args.use_reference and self._args.ref_update_interval
        return Path(root) / "ref" if renewed else None

    def trained(self, rollout_id: int) -> None:
        """``--ref-update-interval``: every so many rollouts the present policy is the reference."""
        interval = self._args.ref_update_interval
        if interval and (rollout_id + 1) % interval == 0:
            self.snapshots.take("ref")

    def add_log_probs(self, data: RolloutBatch, version: int, watch: Stopwatch) -> None:
        """Log-probs of the reference, the teacher and the policy before training, where anything
        needs them.

        With one step per rollout the policy that trains IS the old policy, so its log-probs come
        for free from the training forward pass.

        Args:
            version: of the present weights.
        """
        args = self._args
        if args.use_reference:
            data.update(self._log_probs(data, "ref", "ref_", watch))
        if args.use_opd and args.opd_type == "megatron":
            data.update(self._log_probs(data, "teacher", "teacher_", watch))
        old = self._old_actors.tag_for(data, version) if args.keep_old_actor else None
        several = len(data["num_microbatches"]) > 1
        needed = (
            old is not None
            or (several and (args.get_mismatch_metrics or not args.use_rollout_logprobs))
            or (several and args.use_routing_replay and not args.use_rollout_routing_replay)
            or args.kl_coef != 0
            or (args.use_opd and not args.use_rollout_logprobs)
            or args.use_rollout_entropy
            or args.custom_advantage_function_path is not None
        )
        if needed:
            data.update(self._log_probs(data, old, "", watch))

    def _log_probs(
        self, data: RolloutBatch, weights: str | None, prefix: str, watch: Stopwatch
    ) -> dict[str, Any]:
        """``<prefix>log_probs`` (and entropy) under a snapshot, or the present weights."""
        using = self.snapshots.using(weights) if weights else nullcontext()
        with watch.timed(f"{prefix}log_probs"), using:
            if self._args.custom_megatron_before_log_prob_hook_path:
                hook = load_function(self._args.custom_megatron_before_log_prob_hook_path)
                hook(self._args, self._model, prefix)
            if prefix:  # another model, with routes of its own
                outputs = forward_outputs(self._args, self._model, data, log_probs_function)
            else:
                with self._replay.log_probs():
                    outputs = forward_outputs(
                        self._args, self._model, data, log_probs_function, self._replay
                    )
        return {prefix + key: value for key, value in outputs.items()}
