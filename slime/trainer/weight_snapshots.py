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

    @torch.no_grad()
    def take(self, tag: str) -> None:
        """Copy the present weights; into the same memory, if there is a snapshot of that name."""
        weights = self._weights()
        if tag in self._snapshots:
            for value, param in zip(self._snapshots[tag], weights, strict=True):
                value.copy_(param)
        else:
            self._snapshots[tag] = [param.detach().to("cpu", copy=True) for param in weights]

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
        """The model has the weights of ``tag`` inside, and its own again afterwards.

        Where the model is in host memory too, nothing is copied: its parameters are the snapshot
        inside. They are to be read only.
        """
        if all(param.device.type == "cpu" for param in self._weights()):
            with self._in_place(tag):
                yield
            return
        self.take("_present")
        self.restore(tag)
        try:
            yield
        finally:
            self.restore("_present")
            self.drop("_present")

    @contextlib.contextmanager
    def _in_place(self, tag: str) -> Iterator[None]:
        weights = self._weights()
        own = [param.data for param in weights]
        _point(weights, self._snapshots[tag])
        try:
            yield
        finally:
            _point(weights, own)


def _point(weights: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    for param, value in zip(weights, values, strict=True):
        param.data = value
