"""A program of several ranks: run cases of distributed training and write what came out.

    python train_ranks.py RANKS OUT_DIR CASES_JSON

It imports everything once and forks, so that all cases of a test file pay for one start-up. For
each case ``OUT_DIR/<name>/`` gets metrics.json and an export (hf/) by rank 0, and rank<r>.json from
every rank.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
from conftest import free_port, make_args, make_rollout, rank_share
from critic_ranks import run_critic_case
from forced_routes import add_routes
from megatron.core import parallel_state
from observed_copies import observed_copies

from slime.trainer import initialize
from slime.trainer.hf_to_megatron.common import CheckpointError
from slime.trainer.trainer import Trainer

Case = dict[str, Any]


def run_case(case: Case, out: Path) -> None:
    """Train as the case says, saving and resuming (from another case) where it says so."""
    world = dist.get_world_size()
    places = {"save": str(out / "checkpoint"), "run_dir": str(out)}
    args = make_args(case["hf"], world_size=world, **places, **case["args"])
    if args.use_critic:
        run_critic_case(case, args, out)
        return
    if "resume" in case:
        args.load = str(out.parent / case["resume"] / "checkpoint")
    rollouts = [make_rollout(seed) for seed in range(case["rollouts"])]
    if args.use_rollout_routing_replay:
        rollouts = [add_routes(rollout, seed) for seed, rollout in enumerate(rollouts)]
    if "poison" in case:
        rollouts[1]["rewards"][case["poison"]] = float("nan")
    initialize.initialize_model_parallel(args)
    try:
        trainer = Trainer(args)
        metrics, coalesced = [], []
        begin = trainer.load()
        if "resume" in case:
            trainer.save(begin - 1)  # what was loaded, to be compared
        for rollout_id in range(begin, len(rollouts)):
            dp_rank = trainer.parallel_config()["dp_rank"]
            dp_size = trainer.parallel_config()["dp_size"]
            data = rank_share(rollouts[rollout_id], dp_rank, dp_size, case["micro_batches"])
            with observed_copies(case.get("coalesce")) as copies:
                metrics.append(trainer.train(rollout_id, data))
            coalesced += copies
            if case.get("save_after") == rollout_id:
                trainer.save(rollout_id)
        trainer.finish_save()
        trainer.save_hf(out / "hf")
        sizes = [sum(t.numel() for _, t in bucket) for bucket in trainer.hf_weight_buckets(1 << 14)]
        report = {"begin": begin, "metrics": metrics, "bucket_numels": sizes}
        report["copies"] = coalesced
        if case.get("full_disk"):
            report["full_disk"] = save_on_full_disk(trainer)
        (out / f"rank{dist.get_rank()}.json").write_text(json.dumps(report))
    except CheckpointError as error:
        if "resume" not in case:
            raise
        (out / f"rank{dist.get_rank()}.json").write_text(json.dumps({"refused": str(error)}))
    finally:
        end_groups()


def end_groups() -> None:
    """Megatron's and their threads, which wake a hundred times a second each: a case has thirty."""
    parallel_state.destroy_model_parallel()
    for group in list(dist.distributed_c10d._world.pg_map):
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)


def save_on_full_disk(trainer: Trainer) -> str:
    """What a save says where only the last rank cannot write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if dist.get_rank() == dist.get_world_size() - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        trainer.save(7)
        trainer.finish_save()
    except CheckpointError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return "saved"


def main(rank: int, world: int, port: int, out: Path, cases: list[Case]) -> None:
    initialize.init(make_args(cases[0]["hf"]), rank, world, "127.0.0.1", port)
    end_groups()
    for case in cases:
        folder = out / case["name"]
        folder.mkdir(exist_ok=True)
        run_case(case, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, out_dir, listed = int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    tcp_port = free_port()
    children = []
    for child_rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            main(child_rank, ranks, tcp_port, out_dir, listed)
            os._exit(0)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    sys.exit(max(abs(code) for code in codes))
