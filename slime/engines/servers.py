"""The rollout side's servers: SGLang engines behind routers, started together, watched and stopped
together."""

import contextlib
import functools
import os
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import requests

from slime.arguments.topology import DEFAULT_MODEL, EnginePlan, ModelPlan, plan_models
from slime.engines import command
from slime.engines.engine import Engine, State
from slime.engines.errors import EngineDied
from slime.engines.health import HealthProbes
from slime.engines.health_monitor import RolloutHealthMonitor
from slime.engines.host import EngineHost, Host, Process
from slime.engines.keeper import Keeper
from slime.engines.router import Router, router_name
from slime.engines.start_up import STARTUP_SECONDS, StartUp

_PORT_SECONDS = 10.0
_STOP_SECONDS = 1.0  # SGLang looks for its SIGTERM every 5 s and has nothing to save


class RolloutServers:
    """Engines and routers of one run; those it starts are children of this process and listen on
    the loopback interface.

    Attributes:
        engines: All of them, in the order of the plan.
        routers: One for each model.
    """

    def __init__(
        self,
        args: Namespace,
        run_dir: str | os.PathLike[str],
        gpu_ids: Sequence[int] = (),
        hosts: Sequence[Host] = (),
    ) -> None:
        """`gpu_ids`: the devices of all engines in their order; none on a CPU. `hosts`: for each
        slot of the engines who starts servers on its machine; none where all are on this one."""
        self.args = args
        self.engines: list[Engine] = []
        self.routers: list[Router] = []
        self._probes: HealthProbes | None = None
        self._keeper: Keeper | None = None
        self._monitor: RolloutHealthMonitor | None = None
        self._here = EngineHost(args, Path(run_dir) / "logs")
        self._hosts, self._gpu_ids = list(hosts), list(gpu_ids)

    @property
    def router_url(self) -> str:
        """The router of the trained model (or of the first one)."""
        return self._main_router().url

    @property
    def engine_urls(self) -> list[str]:
        """The engines themselves, for what routers do not forward."""
        return [engine.url for engine in self.engines]

    def start(self, progress: Callable[[str], None]) -> None:
        """Start everything at once and return when the routers answer for every engine.

        Sets `args.sglang_router_ip`, `args.sglang_router_port` and, for several models,
        `args.sglang_model_routers`. `progress` gets a short text every 2 seconds.

        Raises:
            EngineDied: a server ended or did not get ready in time; everything has been stopped
            again.
        """
        models = plan_models(self.args)
        try:
            self._create(models)
            StartUp(self, progress).run()
        except BaseException:
            self.stop()
            raise
        self._tell_where()
        if self.args.use_fault_tolerance:
            self._keep()
        else:
            self._probes = self._make_probes()

    def check(self) -> bool:
        """Whether something is being repaired; never without `--use-fault-tolerance`.

        Raises:
            EngineDied: an engine or a router has ended and is not restarted.
        """
        if self._keeper is not None:
            return self._keeper.check()
        for server in [*self.engines, *self.routers]:
            if failure := server.failure():
                raise EngineDied(failure)
        return False

    def check_responds(self) -> bool:
        """As `check`, and raise too if one that runs has stopped answering. Does not block.

        To be called again and again while an answer is outstanding: each call starts the health
        checks that are due (`--rollout-health-check-interval` and `-timeout`).
        """
        repairing = self.check()
        if self._probes is not None:
            self._probes.check()
        return repairing

    def updatable(self) -> list[Engine]:
        """Engines of the trained model that take weights now."""
        if self._keeper is not None:
            return self._keeper.updatable()
        return [engine for engine in self.engines if engine.trained]

    def waiting(self) -> list[Engine]:
        """Engines that were started again and need the present weights before they serve."""
        return self._keeper.waiting() if self._keeper is not None else []

    def updated(self, urls: Sequence[str], left_behind: Mapping[str, str]) -> None:
        """An update of the weights reached the engines `urls`, but for those left behind.

        Raises:
            EngineDied: one was left behind and is not restarted.
        """
        if self._keeper is not None:
            self._keeper.updated(urls, left_behind)
        elif left_behind:
            self.check()
            listed = "; ".join(f"engine {url} {reason}" for url, reason in left_behind.items())
            raise EngineDied(f"the new weights did not reach every engine: {listed}")

    def pause_checks(self) -> None:
        """No health checks: the engines load weights."""
        if self._monitor is not None:
            self._monitor.pause()

    def resume_checks(self) -> None:
        """Health checks again."""
        if self._monitor is not None:
            self._monitor.resume()

    def stop(self) -> None:
        """End all servers: asked first, killed by pid and process group after a few seconds. May be
        called twice."""
        for watcher in (self._monitor, self._keeper, self._probes):
            if watcher is not None:
                watcher.stop()
        for router in self.routers:
            if router.process is None:
                self._leave(router)
        servers = self.processes()
        for server in servers:
            server.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for server in servers:
            server.kill(deadline - time.monotonic())
        for router in self.routers:
            router.close()
        self.engines, self.routers = [], []
        everywhere: list[Host] = [self._here, *self._hosts]
        for host in {id(host): host for host in everywhere}.values():
            host.stop()

    def _leave(self, router: Router) -> None:
        """Somebody else's router must not send requests to engines that end."""
        for engine in self.engines:
            if engine.url and router.is_for(engine.plan):
                with contextlib.suppress(requests.RequestException, TimeoutError):
                    router.remove(engine.url)

    def processes(self) -> list[Process]:
        """Those that were started here."""
        servers = [*self.engines, *self.routers]
        return [server.process for server in servers if server.process is not None]

    def start_router(self, model: str, disaggregated: bool, port: int | None = None) -> Router:
        """A router of our own on this machine, if it can be on this port."""
        port, prometheus = self._here.free_ports(2, preferred=port)
        words = command.router_command(self.args, port, prometheus, disaggregated)
        process = self._here.run(router_name(model), words)
        return Router(model, f"http://{command.LOOPBACK}:{port}", process)

    def move(self, server: Engine | Router) -> None:
        """Start a server whose process has been killed on another port."""
        if isinstance(server, Engine):
            server.choose_port()
            server.start()
        else:
            self._start_again(server, port=None)

    def restart_router(self, router: Router) -> None:
        """A new process in its place, at the same address.

        Raises:
            EngineDied: it is somebody else's, or its port was taken meanwhile.
        """
        if router.process is None:
            raise EngineDied(f"{router.failure()}\nit is not ours to restart")
        router.process.kill(0.0)
        port, deadline = urlsplit(router.url).port, time.monotonic() + _PORT_SECONDS
        while self._here.free_ports(1, preferred=port) != [port]:
            if time.monotonic() > deadline:
                gone = f"{router.name} cannot come back: somebody took the port of {router.url}"
                raise EngineDied(gone)
            time.sleep(0.1)
        self._start_again(router, port)

    def _start_again(self, router: Router, port: int | None) -> None:
        plans = [engine.plan for engine in self.engines if router.is_for(engine.plan)]
        disaggregated = any(plan.worker_type == "prefill" for plan in plans)
        moved = self.start_router(router.model, disaggregated, port)
        router.url, router.process = moved.url, moved.process

    def _create(self, models: Sequence[ModelPlan]) -> None:
        """All engines and routers, with ports, started but not waited for."""
        for model in models:
            trained = model.update_weights and not self.args.debug_rollout_only
            encoders: list[Engine] = []
            for plan in sorted(model.engines, key=lambda plan: plan.worker_type != "encoder"):
                serves = [] if plan.worker_type == "encoder" else encoders
                engine = Engine(plan, trained, self._hosts_of(plan), self._gpus_of(plan), serves)
                self.engines.append(engine)
                if plan.worker_type == "encoder":
                    encoders.append(engine)
        self.engines.sort(key=lambda engine: engine.plan.index)
        own = [engine for engine in self.engines if not engine.plan.address]
        for engine in own:  # one needs the addresses of the encoders
            engine.choose_port()
        for engine in own:
            engine.start()
        for index, model in enumerate(models):
            if self.args.sglang_router_ip:
                url = f"http://{self.args.sglang_router_ip}:{self.args.sglang_router_port}"
                self.routers.append(Router(model.name, url, None))
            else:
                preferred = self.args.sglang_router_port if index == 0 else None
                self.routers.append(self.start_router(model.name, model.disaggregated, preferred))

    def _hosts_of(self, plan: EnginePlan) -> list[Host]:
        """One for each machine of an engine; none if it runs already."""
        if plan.address:
            return []
        if not self._hosts:
            return [self._here] * plan.num_nodes
        return [self._hosts[plan.gpus_of_node(rank).start] for rank in range(plan.num_nodes)]

    def _gpus_of(self, plan: EnginePlan) -> list[int]:
        return self._gpu_ids[plan.gpu_offset : plan.gpu_offset + plan.num_gpus]

    def _tell_where(self) -> None:
        main = urlsplit(self.router_url)
        if len(self.routers) > 1:
            places = {router.model: urlsplit(router.url) for router in self.routers}
            self.args.sglang_model_routers = {
                model: (place.hostname, place.port)
                for model, place in {DEFAULT_MODEL: main, **places}.items()
            }
        self.args.sglang_router_ip, self.args.sglang_router_port = main.hostname, main.port

    def _main_router(self) -> Router:
        trained = [model.name for model in plan_models(self.args) if model.update_weights]
        ours = [router for router in self.routers if router.model in trained]
        return (ours or self.routers)[0]

    def _keep(self) -> None:
        for engine in self.engines:
            engine.state = State.SERVING
        self._keeper = Keeper(
            self.engines,
            self.routers,
            self.restart_router,
            STARTUP_SECONDS[self.args.device],
            log=functools.partial(print, flush=True),
        )
        self._keeper.start()
        self._monitor = RolloutHealthMonitor(self._keeper, self.args)
        self._monitor.start()

    def _make_probes(self) -> HealthProbes:
        servers = [*self.engines, *self.routers]
        return HealthProbes(
            {s.name: (s.health_url, s.log_tail) for s in servers},
            interval=self.args.rollout_health_check_interval,
            timeout=self.args.rollout_health_check_timeout,
        )
