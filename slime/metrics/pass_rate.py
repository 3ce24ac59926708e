"""Pass@k: the chance that at least one of k responses to a prompt is right."""

import math
from collections.abc import Hashable, Mapping, Sequence

PASSING_REWARD = 1.0


def pass_at_k(num: int, num_right: int, k: int) -> float:
    """The unbiased estimate from `num` responses of which `num_right` are right.

    1 - C(n - c, k) / C(n, k) (Chen et al., arXiv:2107.03374, section 2.1).

    Raises:
        ValueError: Not 0 <= num_right <= num and 1 <= k <= num.
    """
    if not (0 <= num_right <= num and 1 <= k <= num):
        raise ValueError(f"pass@{k} of {num_right} right ones among {num}")
    return 1.0 - math.comb(num - num_right, k) / math.comb(num, k)


def pass_rates(groups: Mapping[Hashable, Sequence[float]]) -> dict[str, float]:
    """`pass@1`, `pass@2`, `pass@4`, ...: each the mean over the groups that have at least k
    responses.

    Args:
        groups: Rewards of the responses to each prompt, one per rollout; a response is right when
            its reward is at least 1. Groups may differ in size.
    """
    rates = {}
    largest = max((len(rewards) for rewards in groups.values()), default=0)
    k = 1
    while k <= largest:
        estimates = [
            pass_at_k(len(rewards), sum(r >= PASSING_REWARD for r in rewards), k)
            for rewards in groups.values()
            if len(rewards) >= k
        ]
        rates[f"pass@{k}"] = math.fsum(estimates) / len(estimates)
        k *= 2
    return rates
