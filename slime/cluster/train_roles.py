"""One rollout through the train ranks: the actor alone, or the actor and its critic."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from slime.cluster.children import Call
from slime.cluster.gpu_turns import ACTOR, CRITIC, GpuTurns
from slime.cluster.rollout_manager import RolloutResult
from slime.cluster.train_actor import TrainGroup


def train_roles(
    args: Namespace,
    actor: TrainGroup,
    critic: TrainGroup | None,
    rollout_id: int,
    result: RolloutResult,
    turns: GpuTurns,
    wait: Callable[[list[Call]], list[Any]],
) -> dict[str, Any]:
    """Train every role on a rollout; metrics of the actor (train/) and of the critic (critic/).

    The critic's values go to the actor, whose returns go back; then both train, at once where each
    has memory. In the first ``--num-critic-only-steps`` rollouts of a run the critic trains alone.
    ``wait`` gives the results of calls in flight.
    """
    if critic is None:
        turns.to_training()
        return wait(actor.call("train", rollout_id, result.batches))[0]
    turns.to_training(CRITIC)
    values = critic.call("values", result.critic_batches)
    wait(values)
    turns.to_training(ACTOR)
    prepared = actor.call("prepare", result.batches, [call.ref for call in values])
    wait(prepared)
    if rollout_id < args.num_critic_only_steps:
        acting = actor.call("skip_training")
    else:
        acting = actor.call("train_prepared", rollout_id)
    if turns.trainers_share:
        wait(acting)
        turns.to_training(CRITIC)
    training = critic.call("train_values", rollout_id, [call.ref for call in prepared])
    metrics = wait([*training, *acting])
    return metrics[0] | metrics[len(training)]
