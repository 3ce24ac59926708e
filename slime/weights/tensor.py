"""Weights by tensor: buckets are given to the engines through memory where both are on one machine,
else posted to them."""

import base64
import io
import pickle
from types import SimpleNamespace
from typing import Any

import torch

from slime.weights.buckets import Entry, fill, layout
from slime.weights.engine_calls import EngineAddress, EngineCalls
from slime.weights.memory import LOADER, MemoryBucket
from slime.weights.updater import NamedTensors, WeightUpdater


class TensorWeightUpdater(WeightUpdater):
    """One bucket at a time, to all engines at once.

    `node`: Ray's id of this machine. Each rank of an engine gets the same bucket and takes its part
    of it.
    """

    def __init__(self, node: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._node = node
        self._memory = MemoryBucket()

    def _begin(self, calls: EngineCalls, version: int) -> None:
        calls.post("/begin_weight_update", {})

    def _send(self, calls: EngineCalls, bucket: NamedTensors) -> None:
        near = [engine for engine in calls.engines if self._is_near(engine)]
        bodies = {}
        if near:
            description = _pickled([("memory", self._memory.put(bucket))])
            bodies = {engine.url: _body(description, engine, LOADER) for engine in near}
        if len(near) < len(calls.engines):
            whole = flattened_bucket(bucket)
            for engine in calls.engines:
                bodies.setdefault(engine.url, _body(whole, engine, "flattened_bucket"))
        calls.post_each("/update_weights_from_tensor", bodies)

    def _end(self, calls: EngineCalls, version: int) -> None:
        calls.post("/end_weight_update", {})

    def _is_near(self, engine: EngineAddress) -> bool:
        return engine.takes_memory and engine.node == self._node

    def close(self) -> None:
        """Let go of the bucket's memory."""
        self._memory.close()


def _body(payload: str, engine: EngineAddress, load_format: str) -> dict[str, Any]:
    return {
        "serialized_named_tensors": [payload] * engine.num_gpus,
        "load_format": load_format,
        "flush_cache": True,
    }


def _pickled(content: Any) -> str:
    """Base64 of a plain pickle. Engines unpickle with an allow-list.

    Plain pickle holds the bytes themselves; torch's sharing of CPU tensors by file descriptor does
    not work across unrelated processes.
    """
    buffer = io.BytesIO()
    pickle.dump(content, buffer, protocol=4)
    return base64.b64encode(buffer.getbuffer()).decode("ascii")


def flattened_bucket(named_tensors: NamedTensors) -> str:
    """SGLang's wire format: a dict of one byte tensor and where each tensor lies in it.

    `SimpleNamespace` carries the attributes of SGLang's own metadata class, so SGLang need not be
    imported on this side.
    """
    entries, size = layout(named_tensors)
    flat = torch.empty(size, dtype=torch.uint8)
    fill(flat, entries, [tensor for _, tensor in named_tensors])
    metadata = [_metadata(entry) for entry in entries]
    return _pickled({"flattened_tensor": flat, "metadata": metadata})


def _metadata(entry: Entry) -> SimpleNamespace:
    return SimpleNamespace(
        name=entry.name,
        shape=entry.shape,
        dtype=getattr(torch, entry.dtype),
        start_idx=entry.start,
        end_idx=entry.end,
        numel=entry.end - entry.start,
    )
