"""The rollout side's servers: SGLang engines behind a router, started together, watched and stopped
together."""

import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import requests

from slime.engines import command, ports
from slime.engines.errors import EngineDied
from slime.engines.health import HealthProbes
from slime.engines.process import ServerProcess

_STARTUP_SECONDS = {"cpu": 600.0, "cuda": 1800.0}
_POLL_SECONDS = 0.1
_PROGRESS_SECONDS = 2.0
_PORT_ATTEMPTS = 4
_LONGEST_TEMP_PATH = 50
_STOP_SECONDS = 1.0  # SGLang looks for its SIGTERM every 5 s and has nothing to save


class RolloutServers:
    """Engines and router of one run; all are children of this process and listen on the loopback
    interface.

    Attributes:
        router_url: Where to send requests, e.g. `http://127.0.0.1:3000`; set by `start`.
        engine_urls: The engines themselves, for weights and aborts, which the router does not
        forward.
    """

    def __init__(
        self, args: Namespace, run_dir: str | os.PathLike[str], gpu_ids: Sequence[int] = ()
    ) -> None:
        """`gpu_ids`: the devices of all engines in their order; none on a CPU."""
        self.args = args
        self._gpu_ids = list(gpu_ids)
        self.router_url = ""
        self.engine_urls: list[str] = []
        self._logs = Path(run_dir) / "logs"
        self._router: ServerProcess | None = None
        self._engines: list[ServerProcess] = []
        self._probes: HealthProbes | None = None
        # Children die with the thread that started them, so that thread must live as long as this
        # object.
        self._spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine-spawner")
        self._scratch = _short_scratch()
        self._http = requests.Session()
        self._http.trust_env = False  # a proxy from the environment must not see loopback traffic

    def start(self, progress: Callable[[str], None]) -> None:
        """Start everything at once and return when the router answers for every engine.

        Sets `args.sglang_router_ip` and `args.sglang_router_port`. `progress` gets a short text
        every 2 seconds.

        Raises:
            EngineDied: a server ended or did not get ready in time; everything has been stopped
            again.
        """
        started = time.monotonic()
        try:
            count = self.args.rollout_num_engines
            preferred = self.args.sglang_router_port
            router_port, prometheus_port, *engine_ports = ports.free_ports(
                count + 2, preferred=preferred
            )
            self.engine_urls = [""] * count
            for index, port in enumerate(engine_ports):
                self._engines.append(self._start_engine(index, port))
            self._router = self._start_router(router_port, prometheus_port)
            self._wait_ready(progress, started)
            self._note_shared_memory()
            self._register(progress, started)
        except BaseException:
            self.stop()
            raise
        self._probes = self._make_probes()
        router = urlsplit(self.router_url)
        self.args.sglang_router_ip, self.args.sglang_router_port = router.hostname, router.port

    def check(self) -> None:
        """Raise `EngineDied` if an engine or the router has ended."""
        for server in self._all():
            server.check()

    def check_responds(self) -> None:
        """As `check`, and raise too if one that runs has stopped answering. Does not block.

        To be called again and again while an answer is outstanding: each call starts the health
        checks that are due (`--rollout-health-check-interval` and `-timeout`).
        """
        self.check()
        if self._probes is not None:
            self._probes.check()

    def stop(self) -> None:
        """End all servers: asked first, killed by pid and process group after a few seconds. May be
        called twice."""
        if self._probes is not None:
            self._probes.stop()
        servers = self._all()
        for server in servers:
            server.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for server in servers:
            server.kill(deadline)
        self._engines, self._router = [], None
        self._spawner.shutdown()
        self._http.close()
        self._scratch.cleanup()

    def _all(self) -> list[ServerProcess]:
        return [*self._engines, *([self._router] if self._router else [])]

    def _make_probes(self) -> HealthProbes:
        # The first generates a token where nothing else is generated, so it asks all processes.
        urls = [f"{url}/health_generate" for url in self.engine_urls]
        urls.append(f"{self.router_url}/liveness")
        targets = {
            server.name: (url, server.log_tail)
            for server, url in zip(self._all(), urls, strict=True)
        }
        args = self.args
        return HealthProbes(
            targets,
            interval=args.rollout_health_check_interval,
            timeout=args.rollout_health_check_timeout,
        )

    def _start_engine(self, index: int, port: int) -> ServerProcess:
        self.engine_urls[index] = f"http://{command.LOOPBACK}:{port}"
        scratch = Path(tempfile.mkdtemp(dir=self._scratch.name))
        return ServerProcess(
            f"engine {index}",
            command.engine_command(self.args, index, port),
            command.engine_environment(self.args, os.environ, scratch, self._gpus_of(index)),
            self._logs / f"engine_{index}.log",
            self._spawner,
        )

    def _gpus_of(self, index: int) -> list[int]:
        count = self.args.rollout_num_gpus_per_engine
        return self._gpu_ids[index * count : (index + 1) * count]

    def _start_router(self, port: int, prometheus_port: int) -> ServerProcess:
        self.router_url = f"http://{command.LOOPBACK}:{port}"
        return ServerProcess(
            "router",
            command.router_command(self.args, port, prometheus_port),
            command.server_environment(os.environ),
            self._logs / "router.log",
            self._spawner,
        )

    def _wait_ready(self, progress: Callable[[str], None], started: float) -> None:
        """Wait until all answer; a server that lost the race for its port is started again on
        another."""
        attempts = 1
        reported = started
        while True:
            attempts += self._restart_where_port_taken(attempts)
            self.check()
            ready = [self._answers(url + "/health") for url in self.engine_urls]
            if all(ready) and self._answers(self.router_url + "/workers"):
                return
            now = time.monotonic()
            if now - reported >= _PROGRESS_SECONDS:
                reported = now
                self._note_shared_memory()
                progress(f"engines ready: {sum(ready)} of {len(ready)} ({now - started:.0f} s)")
            self._check_time(started, "become ready")
            time.sleep(_POLL_SECONDS)

    def _restart_where_port_taken(self, attempts: int) -> int:
        """Start again what could not bind its port; returns how many were."""
        restarted = 0
        for server in self._all():
            # SGLang may stay alive after it failed to bind, so being alive proves nothing.
            taken = ports.says_port_taken(server.log_tail(lines=200))
            if not taken or attempts + restarted >= _PORT_ATTEMPTS:
                continue
            server.kill(time.monotonic())
            server.log.rename(server.log.with_suffix(f".attempt{attempts + restarted}.log"))
            restarted += 1
            port, prometheus_port = ports.free_ports(2)
            if server is self._router:
                self._router = self._start_router(port, prometheus_port)
            else:
                index = self._engines.index(server)
                self._engines[index] = self._start_engine(index, port)
        return restarted

    def _register(self, progress: Callable[[str], None], started: float) -> None:
        """Tell the router its engines and wait until it sends to all of them."""
        for url in self.engine_urls:
            self._http.post(f"{self.router_url}/workers", json={"url": url}, timeout=10)
        while True:
            self.check()
            workers = self._http.get(f"{self.router_url}/workers", timeout=10).json()["workers"]
            healthy = {worker["url"] for worker in workers if worker["is_healthy"]}
            if healthy >= set(self.engine_urls):
                break
            self._check_time(started, "be accepted by the router")
            time.sleep(_POLL_SECONDS)
        took = time.monotonic() - started
        progress(
            f"engines ready: {len(healthy)} of {len(healthy)} behind the router ({took:.0f} s)"
        )

    def _note_shared_memory(self) -> None:
        for server in self._all():
            server.note_shared_memory()

    def _answers(self, url: str) -> bool:
        try:
            return self._http.get(url, timeout=2).ok
        except requests.RequestException:
            return False

    def _check_time(self, started: float, what: str) -> None:
        limit = _STARTUP_SECONDS[self.args.device]
        if time.monotonic() - started > limit:
            tails = "\n".join(server.log_tail() for server in self._all())
            raise EngineDied(f"the engines did not {what} within {limit:.0f} s\n{tails}")


def _short_scratch() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder whose path leaves room for the names of sockets (107 bytes in all)."""
    short = len(tempfile.gettempdir()) <= _LONGEST_TEMP_PATH
    return tempfile.TemporaryDirectory(prefix="slime-engines-", dir=None if short else "/tmp")
