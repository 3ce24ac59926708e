"""Rollouts that no engine made, for runs that only train."""

from pathlib import Path
from random import Random

from slime.data.debug_dump import save_debug_rollout_data
from slime.samples.sample import Sample


def save_random_rollouts(folder: Path, count: int) -> str:
    """Write rollouts 0 to `count` - 1; the value for --load-debug-rollout-data."""
    dump = f"{folder}/{{rollout_id}}"
    for rollout_id in range(count):
        samples = _random_rollout(rollout_id)
        save_debug_rollout_data(dump, samples, rollout_id=rollout_id, evaluation=False)
    return dump


def _random_rollout(seed: int) -> list[Sample]:
    """16 groups of 8 answers of random tokens and lengths, half of them right."""
    random = Random(seed)
    samples = []
    for index in range(128):
        response = random.randint(2, 8)
        samples.append(
            Sample(
                index=index,
                group_index=index // 8,
                rollout_id=index,
                tokens=[random.randrange(100) for _ in range(5 + response)],
                response_length=response,
                reward=float(random.random() < 0.5),
                status=Sample.Status.COMPLETED,
            )
        )
    return samples
