"""The critic of one rank: values before a rollout is trained on, and training on the returns."""

from __future__ import annotations

from slime.trainer.checkpoint import usable_iteration
from slime.trainer.exchange import PerPosition, hear, tell
from slime.trainer.forward_backward import forward_outputs
from slime.trainer.rollout_tensors import RolloutBatch
from slime.trainer.trainer import Trainer
from slime.trainer.value_loss import values_function


class CriticTrainer(Trainer):
    """A trainer whose model ends in a value head; ``args.loss_type`` is "value_loss"."""

    role = "critic"

    def load(self) -> int:
        """Restore the checkpoint that belongs to the actor's; without one start from the backbone.

        The actor's is written last, so a run that ended between the two has a critic that is ahead.
        """
        args = self.args
        again = args.use_previous_checkpoint
        actor = usable_iteration(args.actor_load, args.ckpt_step, again)
        if actor is not None and usable_iteration(args.load, None, again) is not None:
            args.ckpt_step = actor
        return super().load()

    def values(self, rollout_data: RolloutBatch) -> PerPosition:
        """Values of the rollout's response tokens before training on it; keeps the rollout.

        Empty on ranks that have no part in the answer.
        """
        data = self._begin(rollout_data)
        with self._watch.timed("values"):
            data.update(forward_outputs(self.args, self.model, data, values_function))
        self._prepared = data
        return tell(data, "values")

    def train_values(self, rollout_id: int, returns: PerPosition) -> dict[str, float]:
        """Train on the rollout of the last :meth:`values` towards the actor's ``returns``."""
        hear(self._prepared, "returns", returns)
        return self.train_prepared(rollout_id)
