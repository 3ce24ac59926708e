"""Give the engines' GPU memory to the trainer and take it back, by SGLang's own endpoints.

SGLang notes which of its memory is released: what is resumed without having been released is an
error there, on a CPU too, where nothing else happens.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import requests

from slime.engines.engine import Engine

WEIGHTS, KV_CACHE, CUDA_GRAPH = "weights", "kv_cache", "cuda_graph"
REGIONS = (WEIGHTS, KV_CACHE, CUDA_GRAPH)
_IDLE_SECONDS = 120.0
_CALL_SECONDS = 120.0


class EngineMemory:
    """What of which engine is released; one that was started again meanwhile has all it needs."""

    def __init__(self) -> None:
        self._released: dict[tuple[str, int], set[str]] = {}

    @property
    def complete(self) -> bool:
        """Whether nothing is released, so that engines may be asked to generate."""
        return not any(self._released.values())

    def release(self, engines: Iterable[Engine], regions: Sequence[str]) -> None:
        """Free these regions of our engines, as soon as each is idle.

        Released weights lose their content, so engines whose weights nobody sends keep them.

        Raises:
            RuntimeError: an engine does not get idle, or refuses.
        """

        def release(engine: Engine) -> None:
            released = self._released.setdefault((engine.url, engine.starts), set())
            chosen = [n for n in regions if n not in released and (engine.trained or n != WEIGHTS)]
            if chosen:
                _wait_until_idle(engine.url)
                _post(f"{engine.url}/release_memory_occupation", {"tags": chosen})
                released.update(chosen)

        _on_each(engines, release)

    def resume(self, engines: Iterable[Engine], regions: Sequence[str]) -> None:
        """Take these regions back; weights have to be sent anew.

        Raises:
            RuntimeError: an engine refuses.
        """

        def resume(engine: Engine) -> None:
            released = self._released.get((engine.url, engine.starts), set())
            chosen = [name for name in regions if name in released]
            if chosen:
                _post(f"{engine.url}/resume_memory_occupation", {"tags": chosen})
                released.difference_update(chosen)

        engines = list(engines)
        _on_each(engines, resume)
        present = {(engine.url, engine.starts) for engine in engines}
        self._released = {key: names for key, names in self._released.items() if key in present}


def _on_each(engines: Iterable[Engine], action: Callable[[Engine], None]) -> None:
    ours = [engine for engine in engines if engine.process is not None]
    with ThreadPoolExecutor(max(1, len(ours))) as pool:
        list(pool.map(action, ours))


def _wait_until_idle(url: str) -> None:
    """A busy engine would die of a release: flushing its cache succeeds once it is idle."""
    deadline = time.monotonic() + _IDLE_SECONDS
    while not _ask(f"{url}/flush_cache", {}).ok:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the engine at {url} is still busy after {_IDLE_SECONDS:.0f} s")
        time.sleep(0.05)


def _post(url: str, body: dict[str, list[str]]) -> None:
    answer = _ask(url, body)
    if not answer.ok:
        raise RuntimeError(f"{url} answered {answer.status_code}: {answer.text[:300]}")


def _ask(url: str, body: dict[str, list[str]]) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False  # a proxy from the environment must not see loopback traffic
        return session.post(url, json=body, timeout=_CALL_SECONDS)
