"""``--keep-old-actor``: the weights that the engines sampled with, for the old log-probs."""

from __future__ import annotations

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from slime.trainer.rollout_tensors import RolloutBatch
from slime.trainer.weight_snapshots import WeightSnapshots

# The engines' version, and the one before it: a rollout made beside training began with that.
_KEPT = 2


class OldActors:
    """Snapshots of the weights last sent to the engines, by version."""

    def __init__(self, snapshots: WeightSnapshots) -> None:
        self._snapshots = snapshots
        self._versions: list[int] = []

    def sent(self, version: int) -> None:
        """The model's present weights went to the engines as ``version``."""
        if version in self._versions:
            return
        self._snapshots.take(_tag(version))
        self._versions.append(version)
        while len(self._versions) > _KEPT:
            self._snapshots.drop(_tag(self._versions.pop(0)))

    def tag_for(self, data: RolloutBatch, present: int) -> str | None:
        """The snapshot to take the old log-probs from; None for the present weights.

        That is the version which finished the stalest sample of the rollout (on any rank), or the
        next older one that is kept. Collective over the data-parallel ranks.

        Args:
            present: the version of the model's weights.
        """
        made = [int(v[-1]) for v in data.get("weight_versions") or [] if v]
        stalest = torch.tensor(min(made, default=present))
        if parallel_state.get_data_parallel_world_size() > 1:
            device = data["loss_masks"][0].device if data["loss_masks"] else "cpu"
            stalest = stalest.to(device)
            group = parallel_state.get_data_parallel_group()
            dist.all_reduce(stalest, op=dist.ReduceOp.MIN, group=group)
        version = int(stalest)
        if version >= present or not self._versions:
            return None
        older = [kept for kept in self._versions if kept <= version]
        return _tag(max(older, default=self._versions[0]))


def _tag(version: int) -> str:
    return f"sent as version {version}"
