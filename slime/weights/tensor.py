"""Weights by tensor: buckets of HF tensors are posted to every engine in SGLang's
`flattened_bucket` format."""

import base64
import contextlib
import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import orjson
import requests
import torch

from slime.weights.errors import WeightUpdateError
from slime.weights.expected import Shapes, check_complete, check_shapes

NamedTensors = list[tuple[str, torch.Tensor]]


class TensorWeightUpdater:
    """Sends whole models to engines, one bucket at a time, to all engines at once.

    `timeout` is in seconds, for one request. `expected` holds the shapes an update must have (see
    `expected.checkpoint_shapes`); without it, nothing is checked before it is sent.
    `ranks_per_engine` is the tensor-parallel size of an engine: each of its ranks gets the same
    payload and takes its part of it.
    """

    def __init__(
        self,
        engine_urls: Sequence[str],
        timeout: float = 120.0,
        ranks_per_engine: int = 1,
        expected: Shapes | None = None,
    ) -> None:
        self._urls = list(engine_urls)
        self._timeout = timeout
        self._ranks = ranks_per_engine
        self._expected = expected
        self._pool = ThreadPoolExecutor(len(self._urls), thread_name_prefix="weight-update")
        self._sessions = {url: requests.Session() for url in self._urls}
        for session in self._sessions.values():
            session.trust_env = False  # loopback traffic must not go to a proxy of the environment

    def update(self, buckets: Iterable[NamedTensors], version: int) -> None:
        """Replace the engines' weights by `buckets` (HF names, full tensors) and set `version`.

        The version is set last, so an engine that carries it has all of the weights. No request may
        be running: tokens cached with the old weights are dropped.

        Raises:
            WeightUpdateError: the buckets do not fit the model, or an engine refused or did not
                answer. Engines that hold a mixture of old and new weights then carry the version
                `<version>-incomplete`, until an update succeeds.
        """
        sent: set[str] = set()
        self._post_all("/begin_weight_update", {})
        try:
            for bucket in buckets:
                self._send(bucket, sent)
            if self._expected is not None:
                check_complete(self._expected, sent)
        except BaseException:
            self._abandon(f"{version}-incomplete" if sent else None)
            raise
        self._post_all("/end_weight_update", {})
        self._set_version(str(version))
        found = dict(zip(self._urls, self.versions(), strict=True))
        wrong = {url: other for url, other in found.items() if other != str(version)}
        if wrong:
            raise WeightUpdateError(f"engines should have weight version {version}, but: {wrong}")

    def _send(self, bucket: NamedTensors, sent: set[str]) -> None:
        if self._expected is not None:
            check_shapes(self._expected, ((name, tuple(t.shape)) for name, t in bucket))
        sent.update(name for name, _ in bucket)
        body = {
            "serialized_named_tensors": [flattened_bucket(bucket)] * self._ranks,
            "load_format": "flattened_bucket",
            "flush_cache": True,
        }
        self._post_all("/update_weights_from_tensor", body)

    def _set_version(self, version: str) -> None:
        body = {"new_version": version, "abort_all_requests": False}
        self._post_all("/update_weight_version", body)

    def _abandon(self, version: str | None) -> None:
        """Close the session of a failed update on the engines that still answer."""
        with contextlib.suppress(WeightUpdateError):
            self._post_all("/end_weight_update", {})
        if version is not None:
            with contextlib.suppress(WeightUpdateError):
                self._set_version(version)

    def versions(self) -> list[str]:
        """The weight version of each engine, in the order of the addresses."""
        infos = self._on_all(lambda url: self._call(url, "GET", "/model_info", None))
        return [str(info["weight_version"]) for info in infos]

    def close(self) -> None:
        """End the connections and threads."""
        self._pool.shutdown()
        for session in self._sessions.values():
            session.close()

    def _post_all(self, path: str, body: dict[str, Any]) -> None:
        payload = orjson.dumps(body)  # once for all engines
        self._on_all(lambda url: self._call(url, "POST", path, payload))

    def _on_all(self, call: Callable[[str], Any]) -> list[Any]:
        """`call` for every engine in parallel; all have answered when the first error is raised."""
        futures = [self._pool.submit(call, url) for url in self._urls]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def _call(self, url: str, method: str, path: str, payload: bytes | None) -> Any:
        try:
            response = self._sessions[url].request(
                method,
                url + path,
                data=payload,
                headers={"Content-Type": "application/json"},
                timeout=self._timeout,
            )
        except requests.RequestException as error:
            raise WeightUpdateError(f"engine {url} did not answer {path}: {error}") from error
        answer = response.json() if response.content else {}
        if not response.ok or (isinstance(answer, dict) and answer.get("success") is False):
            raise WeightUpdateError(f"engine {url} refused {path}: {response.text[:500]}")
        return answer


def flattened_bucket(named_tensors: NamedTensors) -> str:
    """SGLang's wire format: base64 of a pickled dict of one byte tensor and where each tensor lies
    in it.

    Engines unpickle with an allow-list. `SimpleNamespace` is on it and carries the attributes of
    SGLang's own metadata class, so SGLang need not be imported on this side. Plain pickle holds the
    bytes themselves; torch's sharing of CPU tensors by file descriptor does not work across
    unrelated processes.
    """
    tensors = [(name, tensor.detach().contiguous().cpu()) for name, tensor in named_tensors]
    parts = [tensor.flatten().view(torch.uint8) for _, tensor in tensors]
    metadata, start = [], 0
    for (name, tensor), part in zip(tensors, parts, strict=True):
        entry = SimpleNamespace(
            name=name,
            shape=tuple(tensor.shape),
            dtype=tensor.dtype,
            start_idx=start,
            end_idx=start + part.numel(),
            numel=part.numel(),
        )
        metadata.append(entry)
        start += part.numel()
    buffer = io.BytesIO()
    pickle.dump({"flattened_tensor": torch.cat(parts), "metadata": metadata}, buffer, protocol=4)
    return base64.b64encode(buffer.getbuffer()).decode("ascii")
