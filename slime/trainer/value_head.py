"""The critic's output layer: one number per token in place of logits."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.transformer_config import TransformerConfig


class ValueHead(torch.nn.Module):
    """hidden [s, b, h] -> values [s, b, 1], called as Megatron calls an output layer.

    The weight [1, h] is whole on every tensor-parallel rank and starts the same on every layout;
    ``weight.is_value_head`` tells it from a vocabulary's output layer.
    """

    def __init__(self, config: TransformerConfig, seed: int) -> None:
        super().__init__()
        self.sequence_parallel = config.sequence_parallel
        start = torch.empty(1, config.hidden_size)
        start.normal_(0.0, config.init_method_std, generator=torch.Generator().manual_seed(seed))
        device = "cpu" if config.use_cpu_initialization else torch.cuda.current_device()
        self.weight: Any = torch.nn.Parameter(start.to(device, config.params_dtype))
        self.weight.is_value_head = True
        # Each rank's gradient is of its part of the sequence; Megatron sums those marked so.
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, hidden: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        """Values in float32, of the whole sequence also under sequence parallelism."""
        values = torch.nn.functional.linear(hidden.float(), self.weight.float())
        if self.sequence_parallel:
            values = gather_from_sequence_parallel_region(values, tensor_parallel_output_grad=False)
        return values, None
