"""Dynamic sampling filters (DAPO, arXiv:2503.14476, section 3.2): groups without a signal are left
out.
"""

import math
import statistics
from typing import Any

from slime.filters.base_types import DynamicFilterOutput
from slime.samples.groups import flatten, positions_by, rollout_identities
from slime.samples.sample import Sample


def check_reward_nonzero_std(
    args: Any, samples: list[Sample], **kwargs: Any
) -> DynamicFilterOutput:
    """Keep a group whose rollouts differ in reward: otherwise every advantage is zero.

    Samples without a reward (None) tell nothing and are left out of the comparison.
    """
    values = _reward_per_rollout(args, samples)
    # Equality, not a computed deviation: that of equal floats need not be zero.
    if any(value != values[0] for value in values[1:]):
        return DynamicFilterOutput(keep=True)
    reason = f"zero_std_{values[0]:.1f}" if values and math.isfinite(values[0]) else "zero_std"
    return DynamicFilterOutput(keep=False, reason=reason)


def check_reward_nonzero_std_with_fallback(
    args: Any, samples: list[Sample], **kwargs: Any
) -> DynamicFilterOutput:
    """As above, but such groups are kept when too few others remain to fill the batch."""
    output = check_reward_nonzero_std(args, samples, **kwargs)
    output.keep_when_insufficient = not output.keep
    return output


def _reward_per_rollout(args: Any, samples: list[Sample]) -> list[float]:
    """One value per graded rollout: the mean over the samples it fanned out into."""
    graded = [sample for sample in flatten(samples) if sample.reward is not None]
    by_rollout = positions_by(rollout_identities(graded)).values()
    rewards = [sample.get_reward_value(args) for sample in graded]
    # The mean of fractions: equal rewards have an equal mean, which a sum of floats does not give.
    return [float(statistics.mean(rewards[p] for p in positions)) for positions in by_rollout]
