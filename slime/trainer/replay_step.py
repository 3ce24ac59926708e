"""Run a dumped training step again: ``python -m slime.trainer.replay_step FOLDER``.

The folder is one that :mod:`slime.trainer.step_dump` wrote. As many processes as the run had train
ranks start on this machine; rank 0 tells the loss, the gradient norm, and every rank which of its
samples and which of its parameters are not finite. Nothing is changed.
"""

from __future__ import annotations

import argparse
import json
import math
import socket
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    world_size = len(list(folder.glob("rank*.json")))
    if world_size == 0:
        parser.error(f"{folder} holds no rank*.json")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(_run_rank, (folder, world_size, port), nprocs=world_size)


def _run_rank(rank: int, folder: Path, world_size: int, port: int) -> None:
    from slime.trainer.initialize import init

    init(args_of(folder, rank), rank, world_size, "127.0.0.1", port)
    # With its end of line in one write: the ranks share a terminal.
    print(f"rank {rank}: {json.dumps(replay(folder, rank))}\n", end="", flush=True)
    torch.distributed.destroy_process_group()


def args_of(folder: Path, rank: int) -> Namespace:
    """The arguments of the run that wrote the dump."""
    values = json.loads((folder / f"rank{rank}.json").read_text())["args"]
    if values.get("window_size") is not None:
        values["window_size"] = tuple(values["window_size"])
    return Namespace(**values)


def replay(folder: Path, rank: int) -> dict[str, Any]:
    """What the step gives on this rank, in a train group as large as the run's.

    Returns:
        loss, grad_norm; bad_samples: indices of this rank's samples whose loss alone is not finite;
        bad_gradients: names of parameters.
    """
    from slime.trainer import step_dump
    from slime.trainer.critic import CriticTrainer
    from slime.trainer.forward_backward import forward_backward, forward_outputs
    from slime.trainer.trainer import Trainer

    args = args_of(folder, rank)
    content, weights, data = step_dump.read(folder, rank)
    kind = CriticTrainer if content["role"] == "critic" else Trainer
    trainer = kind(args)
    step_dump.put_weights(trainer.model, weights)
    trainer.optimizer.zero_grad()
    metrics = forward_backward(args, trainer.model, data, content["step"])
    bad = [
        name
        for chunk in trainer.model
        for name, param in chunk.named_parameters()
        if param.requires_grad and not torch.isfinite(param.main_grad).all()
    ]
    trainer.optimizer.prepare_grads()
    norm = float(trainer.optimizer.get_grad_norm())
    alone = _one_by_one(data, content["step"])
    losses = forward_outputs(args, trainer.model, alone, _loss_alone).get("loss", [])
    numbers = data.get("sample_indices", range(len(data["tokens"])))
    return {
        "loss": metrics["loss"],
        "grad_norm": norm,
        "bad_samples": [
            numbers[i] for i, v in enumerate(losses) if v.numel() and not math.isfinite(v.item())
        ],
        "bad_gradients": bad,
    }


def _one_by_one(data: dict[str, Any], step: int) -> dict[str, Any]:
    """The data with only ``step``, each sample a micro-batch of its own."""
    from slime.trainer.rollout_tensors import batches_of_step

    alone = [[place] for batch in batches_of_step(data, step) for place in batch]
    return {
        **data,
        "micro_batch_indices": alone,
        "num_microbatches": [len(alone)],
        "global_batch_sizes": data["global_batch_sizes"][step:],
        "global_num_tokens": data["global_num_tokens"][step:],
    }


def _loss_alone(
    args: Namespace, micro_batch: Any, output: torch.Tensor, non_loss_data: bool = True
) -> dict[str, list[torch.Tensor]]:
    from slime.trainer.loss import loss_function

    loss, _, _ = loss_function(args, micro_batch, output)
    return {"loss": [loss.detach()]}


if __name__ == "__main__":
    main()
