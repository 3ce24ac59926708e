"""Rollouts and a plain Hugging Face training loop as the oracle."""

from __future__ import annotations

import socket
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forced_routes import forced
from hf_models import VOCAB, write_hf_model
from safetensors.torch import load_file

from slime.arguments.facts import gather_facts
from slime.arguments.raw import read_raw
from slime.arguments.resolve import resolve

Rollout = dict[str, Any]


def make_args(hf_checkpoint: Path | str, **options: Any) -> Namespace:
    """What slime.arguments resolves for this checkpoint with ``options``, before validation."""
    world_size = options.pop("world_size", 1)
    argv = ["--hf-checkpoint", str(hf_checkpoint), "--actor-num-gpus-per-node", str(world_size)]
    for name, value in {**_DEFAULTS, **options}.items():
        if value is False or value is None:
            continue
        argv.append("--" + name.replace("_", "-"))
        if value is not True:
            argv += map(str, value) if isinstance(value, list) else [str(value)]
    raw, problems = read_raw(argv)
    assert not problems, problems
    return resolve(raw, gather_facts(raw)[0])


_DEFAULTS: dict[str, Any] = {
    "device": "cpu",
    "seed": 1,
    "lr": 1e-4,
    "num_rollout": 8,
    "rollout_temperature": 0.8,
}


def make_rollout(seed: int, samples: int = 8, steps: int = 2, micro_batches: int = 2) -> Rollout:
    """All samples of a rollout, as one rank would get them: lengths, masks and rewards vary."""
    random = np.random.default_rng(seed)
    responses = [int(n) for n in random.integers(3, 12, samples)]
    totals = [int(n) + r for n, r in zip(random.integers(2, 14, samples), responses, strict=True)]
    masks = [(random.random(r) > 0.25).astype(np.float32) for r in responses]
    for mask in masks:
        mask[-1] = 1.0
    per_step = samples // steps
    order = np.arange(samples).reshape(steps, per_step)
    batches = [b.tolist() for row in order for b in np.array_split(row, micro_batches)]
    return {
        "tokens": [random.integers(0, VOCAB, n) for n in totals],
        "total_lengths": totals,
        "response_lengths": responses,
        "loss_masks": masks,
        "rewards": random.normal(size=samples).tolist(),
        "rollout_log_probs": [random.normal(-4.6, 0.5, r).astype(np.float32) for r in responses],
        "rollout_ids": list(range(samples)),
        "sample_indices": list(range(samples)),
        "micro_batch_indices": batches,
        "num_microbatches": [micro_batches] * steps,
        "global_batch_sizes": [per_step] * steps,
        "global_num_tokens": [float(sum(masks[i].sum() for i in row)) for row in order],
    }


def rank_share(rollout: Rollout, rank: int, size: int, micro_batches: int = 1) -> Rollout:
    """Every size-th sample of each step, in so many micro-batches: a DP rank's share."""
    steps = len(rollout["num_microbatches"])
    per_step = len(rollout["tokens"]) // steps
    mine = [s * per_step + i for s in range(steps) for i in range(rank, per_step, size)]
    names = "tokens total_lengths response_lengths loss_masks rewards rollout_log_probs"
    lists = [*names.split(), "rollout_ids", "sample_indices"]
    lists += ["rollout_routed_experts"] if "rollout_routed_experts" in rollout else []
    share = {key: [rollout[key][i] for i in mine] for key in lists}
    each = len(mine) // steps
    return {
        **rollout,
        **share,
        "micro_batch_indices": [
            part.tolist()
            for s in range(steps)
            for part in np.array_split(np.arange(s * each, (s + 1) * each), micro_batches)
        ],
        "num_microbatches": [micro_batches] * steps,
    }


@dataclass
class Reference:
    """What plain Hugging Face training gave: metrics of each rollout and the final weights."""

    metrics: list[dict[str, float]]
    weights: dict[str, torch.Tensor]


def reference_adamw(args: Namespace, model: torch.nn.Module) -> torch.optim.AdamW:
    """torch's AdamW as the options say; vectors (norms, biases) do not decay."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    return torch.optim.AdamW(
        [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_eps,
        weight_decay=args.weight_decay,
    )


def hf_reference(args: Namespace, rollouts: list[Rollout]) -> Reference:
    """GRPO with torch's AdamW, one sequence per forward pass; no code of slime takes part."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.hf_checkpoint, dtype=torch.float32
    )
    base = transformers.AutoModelForCausalLM.from_pretrained(
        args.hf_checkpoint, dtype=torch.float32
    )
    optimizer = reference_adamw(args, model)
    return Reference(
        [_train_one(args, model, base, optimizer, rollout) for rollout in rollouts],
        _saved_weights(model),
    )


def _saved_weights(model: Any) -> dict[str, torch.Tensor]:
    """What the model writes to disk: in memory it may hold all experts in one tensor."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(Path(folder, "model.safetensors"))


def _token_stats(
    args: Namespace, model: Any, rollout: Rollout, i: int, policy: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and entropies of the response of sample i; the policy takes the routes told."""
    ids = torch.as_tensor(rollout["tokens"][i])
    n = rollout["response_lengths"][i]
    routes = rollout.get("rollout_routed_experts") if policy else None
    with forced(model, routes[i] if routes else None):
        logits = model(input_ids=ids[None]).logits[0, -n - 1 : -1].float()
    logits = logits / args.rollout_temperature
    log_p = torch.log_softmax(logits, -1)
    return log_p.gather(1, ids[-n:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def _train_one(
    args: Namespace, model: Any, base: Any, optimizer: torch.optim.Optimizer, rollout: Rollout
) -> dict[str, float]:
    count = len(rollout["tokens"])
    with torch.no_grad():
        old = [_token_stats(args, model, rollout, i)[0] for i in range(count)]
        ref = [_token_stats(args, base, rollout, i, policy=False)[0] for i in range(count)]
    steps = len(rollout["num_microbatches"])
    per_step = count // steps
    totals: dict[str, float] = {}
    for step in range(steps):
        optimizer.zero_grad()
        for i in range(step * per_step, (step + 1) * per_step):
            new, entropy = _token_stats(args, model, rollout, i)
            mask = torch.as_tensor(rollout["loss_masks"][i])
            ratio, reward = torch.exp(new - old[i]), rollout["rewards"][i]
            pg = torch.maximum(
                -ratio * reward, -ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip) * reward
            )
            gap = ref[i] - new
            kl = torch.exp(gap) - 1 - gap
            loss = pg - args.entropy_coef * entropy + args.kl_loss_coef * kl
            scale = mask.sum() * per_step
            ((loss * mask).sum() / scale).backward()
            for key, value in {"loss": loss, "pg_loss": pg, "entropy": entropy, "kl": kl}.items():
                totals[key] = (
                    totals.get(key, 0.0) + float((value.detach() * mask).sum() / scale) / steps
                )
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
        totals["grad_norm"] = totals.get("grad_norm", 0.0) + float(norm) / steps
        optimizer.step()
    return totals


def free_port() -> int:
    """A loopback port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def hf_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """(kind, tied=True, seed=0) -> folder of a tiny checkpoint, made once."""
    made: dict[tuple[str, bool, int], Path] = {}

    def get(kind: str = "qwen3", tied: bool = True, seed: int = 0) -> Path:
        key = (kind, tied, seed)
        if key not in made:
            folder = tmp_path_factory.mktemp(f"{kind}-{tied}-{seed}")
            made[key] = write_hf_model(folder, kind, tied, seed)
        return made[key]

    return get


@pytest.fixture(scope="session")
def single_rank(hf_model) -> Iterator[None]:
    """This process is a train group of one."""
    import torch.distributed as dist

    from slime.trainer.initialize import init

    init(make_args(hf_model()), master_port=free_port())
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def args_for() -> Callable[..., Namespace]:
    return make_args


@pytest.fixture(scope="session")
def rollout_of() -> Callable[..., Rollout]:
    return make_rollout


@pytest.fixture(scope="session")
def reference_of() -> Callable[..., Reference]:
    return hf_reference
