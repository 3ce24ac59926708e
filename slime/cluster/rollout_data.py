"""How a rollout reaches the train ranks: through Ray's object store, each rank its own part."""

from argparse import Namespace
from collections.abc import Sequence

import ray

from slime.data.train_batch import RolloutData


def process_rollout_data(
    args: Namespace, rollout_data_ref: Sequence[ray.ObjectRef], dp_rank: int, dp_size: int
) -> RolloutData:
    """The part of data-parallel rank `dp_rank`: its arrays are views into shared memory.

    Raises:
        ValueError: there is not one reference for each of `dp_size` ranks.
    """
    if len(rollout_data_ref) != dp_size:
        raise ValueError(f"{len(rollout_data_ref)} parts of a rollout for {dp_size} ranks")
    data: RolloutData = ray.get(rollout_data_ref[dp_rank])
    return data
