"""A Hugging Face mixture of experts whose tokens go where they are told; routes to tell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

LAYERS, EXPERTS, TOPK = 2, 4, 2  # of hf_models' qwen3_moe


def add_routes(rollout: dict[str, Any], seed: int) -> dict[str, Any]:
    """The rollout with random routes, as engines report them; one token's route is not known."""
    random = np.random.default_rng(seed)
    routes = []
    for total in rollout["total_lengths"]:
        order = [[random.permutation(EXPERTS)[:TOPK] for _ in range(LAYERS)] for _ in range(total)]
        known = np.array(order[:-1], dtype=np.int32)
        known[0] = -1
        routes.append(known)
    return {**rollout, "rollout_routed_experts": routes}


def _gates(model: Any) -> list[Any]:
    return [m for m in model.modules() if type(m).__name__ == "Qwen3MoeTopKRouter"]


@contextlib.contextmanager
def forced(model: Any, routes: Any) -> Iterator[None]:
    """Inside, row t of layer l goes to ``routes[t, l]``; -1 and missing rows to the gate's choice.

    None forces nothing.
    """
    gates = _gates(model) if routes is not None else []
    for layer, gate in enumerate(gates):
        chosen = torch.as_tensor(routes)[:, layer].long()

        def forward(hidden: torch.Tensor, gate: Any = gate, chosen: torch.Tensor = chosen) -> Any:
            hidden = hidden.reshape(-1, gate.hidden_dim)
            logits = torch.nn.functional.linear(hidden, gate.weight)
            probs = torch.softmax(logits.float(), -1)
            own = probs.topk(gate.top_k, -1).indices
            told = torch.full_like(own, -1)
            told[: len(chosen)] = chosen
            experts = torch.where(told < 0, own, told)
            values = probs.gather(1, experts)
            return logits, values / values.sum(-1, keepdim=True), experts

        gate.forward = forward
    try:
        yield
    finally:
        for gate in gates:
            del gate.forward


def own_routes(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """[T, layers, topk] where the model itself sends the tokens."""
    found: list[torch.Tensor] = []
    hooks = [
        gate.register_forward_hook(lambda _module, _inputs, out: found.append(out[2]))
        for gate in _gates(model)
    ]
    with torch.no_grad():
        model(input_ids=ids[None])
    for hook in hooks:
        hook.remove()
    return torch.stack(found, 1)
