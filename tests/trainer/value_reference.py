"""PPO's critic in plain Hugging Face and torch: backbone, linear head, GAE by its recursion."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
import torch
from conftest import reference_adamw

Rollout = dict[str, Any]


class ValueModel(torch.nn.Module):
    """One number per token; the head starts as ``head`` [1, hidden]."""

    def __init__(self, checkpoint: str, head: torch.Tensor) -> None:
        import transformers

        super().__init__()
        self.backbone = transformers.AutoModel.from_pretrained(checkpoint, dtype=torch.float32)
        self.head = torch.nn.Parameter(head.clone())

    def response_values(self, rollout: Rollout, i: int) -> torch.Tensor:
        """Values before each response token of sample i."""
        ids, n = torch.as_tensor(rollout["tokens"][i]), rollout["response_lengths"][i]
        hidden = self.backbone(input_ids=ids[None]).last_hidden_state[0]
        return (hidden @ self.head[0])[-n - 1 : -1]


def gae(args: Namespace, reward: float, values: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    """(advantages, returns) of one response in float64, over its unmasked positions."""
    advantages, returns = np.zeros(len(values)), np.zeros(len(values))
    carry = bootstrap = 0.0
    pending = float(reward)
    for t in reversed(np.flatnonzero(mask)):
        delta = pending + args.gamma * bootstrap - float(values[t])
        carry = delta + args.gamma * args.lambd * carry
        bootstrap, pending = float(values[t]), 0.0
        advantages[t], returns[t] = carry, carry + float(values[t])
    return advantages, returns


def train_values(
    args: Namespace, head: torch.Tensor, rollouts: list[Rollout]
) -> tuple[list[dict[str, float]], ValueModel]:
    """Metrics per rollout and the model after AdamW on the clipped value loss."""
    model = ValueModel(args.hf_checkpoint, head)
    optimizer = reference_adamw(args, model)
    return [_train_one(args, model, optimizer, rollout) for rollout in rollouts], model


def _train_one(
    args: Namespace, model: ValueModel, optimizer: torch.optim.Optimizer, rollout: Rollout
) -> dict[str, float]:
    count, steps = len(rollout["tokens"]), len(rollout["num_microbatches"])
    with torch.no_grad():
        old = [model.response_values(rollout, i) for i in range(count)]
    masks = [torch.as_tensor(mask) for mask in rollout["loss_masks"]]
    targets = [
        torch.tensor(gae(args, rollout["rewards"][i], old[i], masks[i])[1], dtype=torch.float32)
        for i in range(count)
    ]
    totals = {"loss": 0.0, "grad_norm": 0.0, "values": 0.0}
    for step in range(steps):
        optimizer.zero_grad()
        for i in range(step * count // steps, (step + 1) * count // steps):
            new = model.response_values(rollout, i)
            held = old[i] + (new - old[i]).clamp(-args.value_clip, args.value_clip)
            errors = torch.maximum((new - targets[i]) ** 2, (held - targets[i]) ** 2) / 2
            scale = masks[i].sum() * (count // steps)
            loss = (errors * masks[i]).sum() / scale
            loss.backward()
            totals["loss"] += float(loss) / steps
            totals["values"] += float((new * masks[i]).sum() / scale) / steps
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
        totals["grad_norm"] += float(norm) / steps
        optimizer.step()
    return totals
