"""What all ways of sending weights share: whole or not at all, versions that only grow."""

import abc
import contextlib
from collections.abc import Callable, Iterable, Sequence

import torch

from slime.weights.engine_calls import EngineAddress, EngineCalls
from slime.weights.equality import ExpectedChecksums
from slime.weights.errors import EnginesLeftBehind, WeightUpdateError
from slime.weights.expected import Shapes, check_complete, check_shapes

NamedTensors = list[tuple[str, torch.Tensor]]


class WeightUpdater(abc.ABC):
    """Sends whole models to engines.

    Args:
        timeout: seconds, for one request.
        expected: the shapes an update must have (see `expected.checkpoint_shapes`); without it,
            nothing is checked before it is sent.
        checksums: makes, from the engines' numbers of ranks, what their weights are compared with
            after an update; without it, they are not compared.
    """

    def __init__(
        self,
        timeout: float = 120.0,
        expected: Shapes | None = None,
        checksums: Callable[[set[int]], ExpectedChecksums] | None = None,
    ) -> None:
        self._timeout = timeout
        self._expected = expected
        self._checksums = checksums
        self._version = -1

    def update(
        self, engines: Sequence[EngineAddress], buckets: Iterable[NamedTensors], version: int
    ) -> None:
        """Replace the engines' weights by `buckets` (HF names, full tensors) and set `version`.

        The version is set last, so an engine that carries it has all of the weights. No request may
        be running: tokens cached with the old weights are dropped. An engine that fails is left
        out; the others still get everything.

        Raises:
            EnginesLeftBehind: after the others have the version. Those left behind may hold a
                mixture; if they answer, they carry the version `<version>-incomplete`.
            WeightUpdateError: nobody has the version: the buckets do not fit the model, or the
                version is older than the last one.
        """
        if version < self._version:
            raise WeightUpdateError(
                f"weight versions only grow: {version} after {self._version} (two trainers?)"
            )
        self._version = version
        calls = EngineCalls(engines, self._timeout)
        sizes = {engine.num_gpus for engine in engines}
        checksums = self._checksums(sizes) if self._checksums is not None else None
        sent: set[str] = set()
        try:
            try:
                self._begin(calls, version)
                for bucket in buckets:
                    if self._expected is not None:
                        check_shapes(self._expected, ((n, tuple(t.shape)) for n, t in bucket))
                    sent.update(name for name, _ in bucket)
                    if checksums is not None:
                        checksums.add(bucket)
                    self._send(calls, bucket)
                if self._expected is not None:
                    check_complete(self._expected, sent)
            except BaseException:
                self._abandon(calls, version if sent else None)
                raise
            self._end(calls, version)
            _set_version(calls, str(version))
            self._verify(calls, version, checksums)
            if calls.failed:
                _mark_incomplete(calls, engines, version, self._timeout)
                raise EnginesLeftBehind(version, calls.failed)
        finally:
            calls.close()

    @abc.abstractmethod
    def _begin(self, calls: EngineCalls, version: int) -> None:
        """Make the engines ready."""

    @abc.abstractmethod
    def _send(self, calls: EngineCalls, bucket: NamedTensors) -> None:
        """Bring one bucket to all engines (or to where `_end` takes it from)."""

    @abc.abstractmethod
    def _end(self, calls: EngineCalls, version: int) -> None:
        """Make the engines use what was sent."""

    def _abandon(self, calls: EngineCalls, version: int | None) -> None:
        """Close the session of a failed update. With a version the engines hold a mixture."""
        calls.post("/end_weight_update", {})
        if version is not None:
            _set_version(calls, f"{version}-incomplete")

    def _verify(
        self, calls: EngineCalls, version: int, checksums: ExpectedChecksums | None
    ) -> None:
        for url, info in calls.get("/model_info").items():
            if info["weight_version"] != str(version):
                calls.failed[url] = f"has weight version {info['weight_version']}"
        if checksums is not None:
            asked = b'{"action":"checksum","selector":"target"}'
            answers = calls.each(lambda e: calls.request(e.url, "POST", "/weights_checker", asked))
            for url, answer in answers.items():
                if problem := checksums.compare(answer):
                    calls.failed[url] = problem

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Give back what is held between updates."""


def versions(engines: Sequence[EngineAddress], timeout: float = 30.0) -> dict[str, str]:
    """The weight version of each engine that answers, by address."""
    with contextlib.closing(EngineCalls(engines, timeout)) as calls:
        found = calls.get("/model_info")
    return {url: str(info["weight_version"]) for url, info in found.items()}


def _set_version(calls: EngineCalls, version: str) -> None:
    calls.post("/update_weight_version", {"new_version": version, "abort_all_requests": False})


def _mark_incomplete(
    calls: EngineCalls, engines: Sequence[EngineAddress], version: int, timeout: float
) -> None:
    """Say so on the engines left behind that still answer; they may hold a mixture."""
    left = [engine for engine in engines if engine.url in calls.failed]
    with contextlib.closing(EngineCalls(left, min(timeout, 5.0))) as rest:
        rest.post("/end_weight_update", {})
        rest.failed.clear()  # there may have been no session
        _set_version(rest, f"{version}-incomplete")
