"""A program of two ranks whose process groups are torn down and made again between two rollouts.

python reload_ranks.py HF_MODEL OUT.json
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from conftest import free_port, make_args, make_rollout, rank_share
from megatron.core import parallel_state

from slime.trainer import initialize
from slime.trainer import reloadable_process_group as reloadable
from slime.trainer.trainer import Trainer

OPTIONS = {"use_distributed_optimizer": True, "tensor_model_parallel_size": 1}


def run(hf: str, reload: bool) -> list[dict[str, float]]:
    """Train three rollouts; with ``reload`` the groups are made anew before each but the first."""
    trainer = Trainer(make_args(hf, world_size=2, **OPTIONS))
    trainer.load()
    metrics = []
    for i in range(3):
        if reload and i > 0:
            reloadable.destroy_process_groups()
            check_that_nothing_is_left()
            reloadable.reload_process_groups()
            reloadable.reload_process_groups()  # does nothing
        rollout = rank_share(make_rollout(i), dist.get_rank(), 2, 1)
        trained = trainer.train(i, rollout)
        metrics.append({key: trained[key] for key in ("loss", "grad_norm", "entropy")})
    return metrics


def check_that_nothing_is_left() -> None:
    """A stand-in still knows who it is, and says that it is not loaded."""
    group = parallel_state._DATA_PARALLEL_GROUP
    assert not dist.is_initialized() and (group.size(), group.rank()) == (2, RANK)
    try:
        group.allreduce([torch.ones(1)])
    except RuntimeError as error:
        assert "ranks [0, 1] is not loaded" in str(error)
    else:
        raise AssertionError("a torn down group was used")


def main(rank: int, port: int, hf: str) -> dict[str, Any]:
    args = make_args(hf, world_size=2, **OPTIONS)
    reloadable.monkey_patch_torch_dist()
    initialize.init(args, rank, 2, "127.0.0.1", port)
    got = run(hf, reload=True)
    return {"reloaded": got, "plain": run(hf, reload=False)}


if __name__ == "__main__":
    tcp_port = free_port()
    RANK = int(os.fork() == 0)
    result = main(RANK, tcp_port, sys.argv[1])
    if RANK:
        os._exit(0)
    assert os.wait()[1] == 0
    Path(sys.argv[2]).write_text(json.dumps(result))
