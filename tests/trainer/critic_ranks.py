"""What each of the ranks of train_ranks.py does in a case of PPO."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from conftest import make_rollout, rank_share
from megatron.core import parallel_state
from safetensors.torch import save_file
from value_reference import gae

from slime.arguments.roles import args_of_role
from slime.trainer import initialize
from slime.trainer.critic import CriticTrainer
from slime.trainer.model_provider import unwrap


def run_critic_case(case: dict[str, Any], actor_args: Namespace, out: Path) -> None:
    """Values of every rollout, training on the returns of the plain recursion; the head's end.

    Writes rank<r>.json, and head<r>.safetensors from the ranks of the last stage.
    """
    args = args_of_role(actor_args, "critic")
    initialize.initialize_model_parallel(args)
    try:
        critic = CriticTrainer(args)
        critic.load()
        report: dict[str, Any] = {"values": [], "metrics": []}
        for rollout_id in range(case["rollouts"]):
            whole = make_rollout(rollout_id)
            config = critic.parallel_config()
            data = rank_share(whole, config["dp_rank"], config["dp_size"], case["micro_batches"])
            told: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(told, critic.values({**data, "partition": data["rollout_ids"]}))
            values = {place: value for part in told for place, value in part.items()}
            returns = {
                i: gae(args, whole["rewards"][i], value, whole["loss_masks"][i])[1]
                for i, value in values.items()
            }
            returns = {i: value.astype("float32") for i, value in returns.items()}
            report["metrics"].append(critic.train_values(rollout_id, returns))
            report["values"].append({i: value.tolist() for i, value in values.items()})
        heads = [m.output_layer.weight for c in critic.model if (m := unwrap(c)).post_process]
        for head in heads:
            save_file({"head": head.detach()}, out / f"head{dist.get_rank()}.safetensors")
        (out / f"rank{dist.get_rank()}.json").write_text(json.dumps(report))
    finally:
        parallel_state.destroy_model_parallel()
