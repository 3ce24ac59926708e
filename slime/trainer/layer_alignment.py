"""Where two models part: the outputs of every layer, of Megatron and of transformers, compared.

The command is `//tools:compare_layers`.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_EMBEDDING = "embedding"


@dataclass(frozen=True)
class Difference:
    """Of one layer: largest absolute difference, and that over the largest value."""

    name: str
    largest: float
    relative: float


def compare(got: Mapping[str, torch.Tensor], want: Mapping[str, torch.Tensor]) -> list[Difference]:
    """Differences of what both have, in the order of ``want``.

    Raises:
        ValueError: a layer is missing, or has another shape.
    """
    found = []
    for name, value in want.items():
        if name not in got or got[name].shape != value.shape:
            other = tuple(got[name].shape) if name in got else "missing"
            raise ValueError(f"{name} is {tuple(value.shape)} in one, {other} in the other")
        largest = float((got[name].float() - value.float()).abs().max())
        scale = float(value.float().abs().max()) or 1.0
        found.append(Difference(name, largest, largest / scale))
    return found


def first_difference(differences: list[Difference], tolerance: float) -> Difference | None:
    """The first layer whose relative difference is above ``tolerance``."""
    return next((d for d in differences if not d.relative <= tolerance), None)


@contextmanager
def recorded(modules: Mapping[str, torch.nn.Module]) -> Iterator[dict[str, torch.Tensor]]:
    """The outputs of these modules in the forward passes inside, as [tokens, ...] on the host."""
    found: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            value = output[0] if isinstance(output, tuple) else output
            found[name] = value.detach().reshape(-1, value.shape[-1]).cpu().clone()

        return hook

    hooks = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def megatron_layers(args: Namespace, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs of the embedding, every layer, and logits for one sequence [tokens].

    Call :func:`slime.trainer.initialize.init` before; one rank.
    """
    from slime.trainer.hf_weights import load_hf_weights
    from slime.trainer.micro_batch import pack
    from slime.trainer.model_provider import build_model_chunks, unwrap
    from slime.trainer.optimizer import to_half_precision, wrap_model

    (model,) = wrap_model(args, to_half_precision(args, build_model_chunks(args)))
    load_hf_weights(args, [model], args.hf_checkpoint)
    core, count = unwrap(model), len(ids)
    data = {"tokens": [ids], "total_lengths": [count], "response_lengths": [count - 1]}
    batch = pack(args, data, [0], 0)
    layers = {f"layer.{i}": layer for i, layer in enumerate(core.decoder.layers)}
    with torch.no_grad(), recorded({_EMBEDDING: core.embedding, **layers}) as found:
        logits = model(
            input_ids=batch.tokens,
            position_ids=batch.position_ids,
            attention_mask=None,
            packed_seq_params=batch.packed_seq_params,
        )
    found["logits"] = logits.reshape(-1, logits.shape[-1])[:, : args.hf_architecture["vocab_size"]]
    return {name: value[:count].float().cpu().contiguous() for name, value in found.items()}


@torch.no_grad()
def hf_layers(folder: str | Path, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same of transformers' model, in float32."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    layers = {f"layer.{i}": layer for i, layer in enumerate(model.model.layers)}
    with recorded({_EMBEDDING: model.get_input_embeddings(), **layers}) as found:
        logits = model(input_ids=ids.cpu()[None]).logits[0]
    return {**found, "logits": logits}
