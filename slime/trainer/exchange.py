"""What actor and critic tell each other about a rollout.

Each trains in its own process group and maybe its own layout, so what goes between them is per
sample: {position in the whole rollout: [response_length] float32 array}.
"""

from __future__ import annotations

import numpy as np
import torch
from megatron.core import parallel_state

from slime.trainer.cp_utils import gather_responses, slice_responses
from slime.trainer.rollout_tensors import RolloutBatch

PerPosition = dict[int, np.ndarray]


def tell(data: RolloutBatch, key: str) -> PerPosition:
    """Whole responses of a per-token list, from one rank of each data-parallel replica.

    Empty on the others. Collective over the context-parallel ranks of the last pipeline stage.

    Raises:
        ValueError: a function given by path has not made ``key``.
    """
    if not parallel_state.is_pipeline_last_stage(ignore_virtual=True):
        return {}
    if key not in data:
        raise ValueError(f"--custom-advantage-function-path gave no {key!r}: a critic needs them")
    whole = gather_responses(data[key], data["total_lengths"], data["response_lengths"])
    others = (
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_context_parallel_rank(),
    )
    if any(others):
        return {}
    arrays = [part.float().cpu().numpy() for part in whole]
    return dict(zip(_positions(data), arrays, strict=True))


def hear(data: RolloutBatch, key: str, told: PerPosition) -> None:
    """Add what the other role told as a per-token list of the parts held here.

    Raises:
        ValueError: a sample is missing.
    """
    missing = [position for position in _positions(data) if position not in told]
    if missing:
        raise ValueError(f"no {key} for the samples at {missing[:10]} of the rollout")
    device = data["loss_masks"][0].device if data["loss_masks"] else "cpu"
    whole = [torch.from_numpy(told[at].copy()).to(device) for at in _positions(data)]
    data[key] = slice_responses(whole, data["total_lengths"], data["response_lengths"])


def _positions(data: RolloutBatch) -> list[int]:
    return list(data.get("partition", range(len(data["tokens"]))))
