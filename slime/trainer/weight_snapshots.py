"""Copies of this rank's weights under a name: the reference, a teacher, the old actor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from megatron.core.distributed import DistributedDataParallel

from slime.trainer.hf_weights import named_global_parameters


class WeightSnapshots:
    """Snapshots in host memory; one can take the model's place for a while."""

    def __init__(self, model: list[DistributedDataParallel]) -> None:
        self._model = model
        self._snapshots: dict[str, list[torch.Tensor]] = {}

    def _weights(self) -> list[torch.Tensor]:
        """Parameters, and the biases of routers."""
        return [value for _, value in named_global_parameters(self._model)]

    def take(self, tag: str) -> None:
        """Copy the present weights."""
        self._snapshots[tag] = [param.detach().to("cpu", copy=True) for param in self._weights()]

    def drop(self, tag: str) -> None:
        """Forget a snapshot."""
        del self._snapshots[tag]

    @torch.no_grad()
    def restore(self, tag: str) -> None:
        """Put a snapshot into the model, bit for bit."""
        for param, value in zip(self._weights(), self._snapshots[tag], strict=True):
            param.copy_(value)

    @contextlib.contextmanager
    def using(self, tag: str) -> Iterator[None]:
        """The model has the weights of ``tag`` inside, and its own again afterwards."""
        self.take("_present")
        self.restore(tag)
        try:
            yield
        finally:
            self.restore("_present")
            self.drop("_present")
