"""A transformer layer that also normalises what attention and feed-forward give (GLM-4)."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer.spec_utils import build_module
from megatron.core.transformer.transformer_layer import TransformerLayer


class SandwichLayer(TransformerLayer):
    """Megatron's layer with norms before the two residual additions, besides those before the
    blocks.

    Attributes:
        post_self_attn_layernorm, post_mlp_layernorm: made like ``pre_norm``, the norm class of the
            layer specification.
    """

    def __init__(
        self, config: Any, submodules: Any, *args: Any, pre_norm: Any, **kwargs: Any
    ) -> None:
        super().__init__(config, submodules, *args, **kwargs)
        for name, block in (
            ("post_self_attn_layernorm", self.self_attention),
            ("post_mlp_layernorm", self.mlp),
        ):
            norm = build_module(
                pre_norm,
                config=config,
                hidden_size=config.hidden_size,
                eps=config.layernorm_epsilon,
            )
            setattr(self, name, norm)
            block.register_forward_hook(_normalise_by(norm))


def _normalise_by(norm: torch.nn.Module) -> Any:
    def hook(block: torch.nn.Module, inputs: Any, output: Any) -> Any:
        value, bias = output
        # Megatron adds a bias after its block; the models that have these norms have no biases.
        assert bias is None
        return norm(value), None

    return hook
