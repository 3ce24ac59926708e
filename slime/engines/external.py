"""Engines that somebody else runs (`--rollout-external-engine-addrs`): asked what they are, and
checked before anything is started."""

import dataclasses
import logging
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests

from slime.arguments.errors import ConfigError, Problem

T = TypeVar("T")
R = TypeVar("R")
_OPTION = "--rollout-external-engine-addrs"


@dataclasses.dataclass
class ExternalEngineInfo:
    """What an engine says of itself.

    Attributes:
        worker_type: `regular`, `prefill`, `decode` or `encoder`.
        num_gpus: All its ranks.
        server_info: Its whole answer.
    """

    url: str
    host: str
    port: int
    worker_type: str
    num_gpus: int
    disaggregation_bootstrap_port: int | None = None
    server_info: dict = dataclasses.field(default_factory=dict)

    def is_pd_worker(self) -> bool:
        """Whether it only prefills or only decodes."""
        return self.worker_type in ("prefill", "decode")

    def parallel_config(self) -> dict[str, int]:
        """Sizes of its parallel groups."""
        names = ("tp_size", "pp_size", "dp_size", "ep_size")
        return {name: int(self.server_info.get(name) or 1) for name in names}

    def to_dict(self) -> dict:
        """As plain values."""
        return dataclasses.asdict(self)


@dataclasses.dataclass
class ExternalRolloutServer:
    """The engines of one model and the router in front of them."""

    engines: list[ExternalEngineInfo]
    router_ip: str
    router_port: int


def discover_external_engines(addrs: list[str], timeout: float = 30.0) -> list[ExternalEngineInfo]:
    """Ask every engine (`host:port`) what it is, all at once; answers in the order given.

    Raises:
        ConfigError: names every address that is wrong or does not answer within `timeout` seconds.
    """
    found = _at_once(lambda address: _discover(address, timeout), addrs)
    problems = [entry for entry in found if isinstance(entry, Problem)]
    if len(set(addrs)) < len(addrs):
        problems.append(Problem(_OPTION, addrs, "names an engine twice", "name each once"))
    if problems:
        raise ConfigError(problems)
    return [entry for entry in found if isinstance(entry, ExternalEngineInfo)]


def apply_external_engine_info_to_args(
    args: Namespace, logger: logging.Logger | None = None
) -> None:
    """Discover the engines and set what follows: how many there are, and their ranks.

    Raises:
        ConfigError: an engine does not answer, serves another model's shape, or is of another size
            than the rest.
    """
    infos = discover_external_engines(args.rollout_external_engine_addrs)
    mismatches = _at_once(lambda info: _mismatch(args, info), infos)
    problems = [problem for problem in mismatches if problem is not None]
    sizes = sorted({info.num_gpus for info in infos})
    if len(sizes) > 1:
        message = f"has engines of {sizes} GPUs; one group of them has one size"
        problems.append(Problem(_OPTION, args.rollout_external_engine_addrs, message))
    if problems:
        raise ConfigError(problems)
    args.rollout_num_gpus_per_engine = sizes[0]
    args.rollout_num_engines = len(infos)
    args.rollout_num_gpus = len(infos) * sizes[0]
    for info in infos:
        if logger is not None:
            logger.info("engine %s: %s, %d GPUs", info.url, info.worker_type, info.num_gpus)


def start_external_rollout_servers(
    args: Namespace, *, start_router: Callable[..., tuple[str, int]]
) -> tuple[dict[str, ExternalRolloutServer], list]:
    """Discover the engines and put them behind a router: `start_router(args)` gives its address.

    Returns the servers by model name, and the processes started for them (none).
    """
    infos = discover_external_engines(args.rollout_external_engine_addrs)
    ip, port = start_router(args)
    for info in infos:
        body: dict[str, Any] = {"url": info.url}
        if info.is_pd_worker():
            body |= {
                "worker_type": info.worker_type,
                "bootstrap_port": info.disaggregation_bootstrap_port,
            }
        _direct("POST", f"http://{ip}:{port}/workers", 10.0, json=body)
    return {"default": ExternalRolloutServer(infos, ip, port)}, []


def _at_once(ask: Callable[[T], R], of: Sequence[T]) -> list[R]:
    """Every answer, in order; no engine waits for another one's."""
    with ThreadPoolExecutor(max(1, len(of))) as pool:
        return list(pool.map(ask, of))


def _discover(address: str, timeout: float) -> ExternalEngineInfo | Problem:
    url = (address if "://" in address else f"http://{address}").rstrip("/")
    remedy = "start it, or give the host:port of one that runs"
    try:
        place = urlsplit(url)
        host, port = place.hostname, place.port
    except ValueError:
        host = port = None
    if not host or not port:
        return Problem(_OPTION, address, "is no host:port", "give e.g. 10.0.0.2:30000")
    try:
        info = _direct("GET", f"{url}/server_info", timeout).json()
    except (requests.RequestException, ValueError) as error:
        return Problem(_OPTION, address, f"does not answer /server_info: {error}", remedy)
    if not isinstance(info, dict) or "model_path" not in info:
        return Problem(_OPTION, address, "answers, but is no SGLang engine", remedy)
    kind = info.get("disaggregation_mode") or "null"
    worker_type = "encoder" if info.get("encoder_only") else {"null": "regular"}.get(kind, kind)
    return ExternalEngineInfo(
        url=url,
        host=host,
        port=port,
        worker_type=worker_type,
        num_gpus=int(info.get("tp_size") or 1) * int(info.get("pp_size") or 1),
        disaggregation_bootstrap_port=(
            info.get("disaggregation_bootstrap_port") if worker_type == "prefill" else None
        ),
        server_info=info,
    )


def _mismatch(args: Namespace, info: ExternalEngineInfo) -> Problem | None:
    """An engine that serves a model with another vocabulary, or generates only a part."""
    if info.worker_type != "regular":
        message = f"is a {info.worker_type} engine; external engines must be regular ones"
        return Problem(_OPTION, info.url, message, "let slime start disaggregated engines")
    try:
        model = _direct("GET", f"{info.url}/model_info", 30.0).json()
    except (requests.RequestException, ValueError) as error:
        return Problem(_OPTION, info.url, f"does not answer /model_info: {error}")
    kind, expected = model.get("model_type"), args.hf_architecture.get("model_type")
    if kind and expected and kind != expected:
        message = f"serves a {kind} model, --hf-checkpoint is {expected}"
        return Problem(_OPTION, info.url, message, "start it with the same model")
    return None


def _direct(method: str, url: str, timeout: float, **options: Any) -> requests.Response:
    """A request that no proxy of the environment sees."""
    with requests.Session() as session:
        session.trust_env = False
        answer = session.request(method, url, timeout=timeout, **options)
        answer.raise_for_status()
        return answer
