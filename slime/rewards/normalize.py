"""Rewards of a batch: raw values, and values relative to the other rollouts of the same prompt.

GRPO (arXiv:2402.03300, section 4.1) subtracts the group's mean and divides by its standard
deviation; RLOO (arXiv:2402.14740) subtracts the mean of the others. A rollout that fanned out into
several samples counts once.
"""

import math
from argparse import Namespace
from collections.abc import Sequence

from slime.hooks.loading import load_function
from slime.samples.groups import group_identity, positions_by, rollout_identities
from slime.samples.sample import Sample

_CENTRED = frozenset({"grpo", "gspo", "cispo", "rloo", "reinforce_plus_plus_baseline"})
_SCALED = frozenset({"grpo", "gspo", "cispo"})
_EPSILON = 1e-6  # added to the deviation, as in the GRPO implementations


def post_process_rewards(args: Namespace, samples: list[Sample]) -> tuple[list[float], list[float]]:
    """Raw rewards and the ones to train on, both in the order of `samples`.

    Args:
        args: advantage_estimator, rewards_normalization, grpo_std_normalization, reward_key,
            custom_reward_post_process_path (takes over when given).
        samples: Graded samples of whole groups.

    Raises:
        ValueError: A reward is missing or not finite, or a sample that needs one has no group.
    """
    if path := getattr(args, "custom_reward_post_process_path", None):
        both: tuple[list[float], list[float]] = load_function(path)(args, samples)
        return both
    raw = [_finite_reward(args, sample) for sample in samples]
    if not args.rewards_normalization or args.advantage_estimator not in _CENTRED:
        return raw, list(raw)
    scale = args.grpo_std_normalization and args.advantage_estimator in _SCALED
    leave_one_out = args.advantage_estimator == "rloo"
    rewards = list(raw)
    rollouts = rollout_identities(samples)
    for positions in positions_by(group_identity(sample) for sample in samples).values():
        values = normalize_group(
            [raw[p] for p in positions], [rollouts[p] for p in positions], scale, leave_one_out
        )
        for position, value in zip(positions, values, strict=True):
            rewards[position] = value
    return raw, rewards


def normalize_group(
    rewards: Sequence[float], rollouts: Sequence[int], scale: bool, leave_one_out: bool = False
) -> list[float]:
    """Rewards of one group minus the mean over its rollouts; divided by their deviation when
    `scale`. With `leave_one_out` the mean is over the other rollouts.

    A rollout's value is the mean over its samples; the deviation is that of a sample (ddof 1). A
    group of one rollout, or of equal ones, gives zeros.
    """
    members = positions_by(rollouts).values()
    if len(members) == 1 or all(reward == rewards[0] for reward in rewards):
        return [0.0] * len(rewards)
    values = [sum(rewards[p] for p in positions) / len(positions) for positions in members]
    mean = sum(values) / len(values)
    if leave_one_out:
        others = {
            p: (sum(values) - value) / (len(values) - 1)
            for value, positions in zip(values, members, strict=True)
            for p in positions
        }
        return [reward - others[p] for p, reward in enumerate(rewards)]
    if not scale:
        return [reward - mean for reward in rewards]
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    if deviation == 0.0:  # rollouts are equal in the mean and differ only within
        return [0.0] * len(rewards)
    return [(reward - mean) / (deviation + _EPSILON) for reward in rewards]


def _finite_reward(args: Namespace, sample: Sample) -> float:
    value = sample.get_reward_value(args)
    if value is None or not math.isfinite(value):
        raise ValueError(
            f"sample {sample.index} has the reward {value}: every sample that is trained on needs "
            "a number"
        )
    return float(value)
