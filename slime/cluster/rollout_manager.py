"""The actor that owns the rollout side: prompts, engines, the rollout function, train batches."""

import functools
import time
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from slime.arguments.roles import args_of_role
from slime.cluster.children import log_memory_turn, logged, redirect_output
from slime.cluster.engine_hosts import hosts_of
from slime.cluster.measure import measure_evaluation, measure_rollout
from slime.cluster.placement import Node
from slime.data.debug_dump import load_debug_rollout_data, save_debug_rollout_data
from slime.data.train_batch import (
    RolloutData,
    TrainData,
    convert_samples_to_train_data,
    split_by_dp,
)
from slime.engines.engine import Engine
from slime.engines.memory import EngineMemory
from slime.engines.servers import RolloutServers
from slime.hooks import load_function
from slime.rewards.normalize import post_process_rewards
from slime.rollout.base_types import call_rollout_fn
from slime.rollout.engine_requests import router_urls
from slime.rollout.fully_async_rollout import stop_worker
from slime.rollout.http_client import init_http_client, set_liveness_check
from slime.rollout.pausing import continue_engines, pause_engines
from slime.samples.groups import flatten
from slime.weights.engine_calls import EngineAddress


@dataclass
class RolloutResult:
    """One rollout, ready to train on: a reference per data-parallel rank, and its metrics.

    ``critic_batches`` are the same samples, divided as the critic's ranks need them.
    """

    batches: list[ray.ObjectRef] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    critic_batches: list[ray.ObjectRef] = field(default_factory=list)


class RolloutManager:
    """See the module; created by `slime.cluster.placement.create_rollout_manager`."""

    def __init__(self, args: Namespace, log: str, gpu_ids: list[int], nodes: list[Node]) -> None:
        redirect_output(Path(log))
        self.args = args
        self.servers: RolloutServers | None = None
        self._gpu_ids, self._nodes = gpu_ids, nodes
        self._parallel_config: dict[str, int] = {"dp_size": 1, "cp_size": 1}
        self._critic_config: dict[str, int] | None = None
        self._memory = EngineMemory()

    @logged
    def start(self) -> bool:
        """Start router and engines; returns whether there are any."""
        args = self.args
        if args.debug_train_only:
            self._load()
            return False
        hosts = hosts_of(args, Path(args.run_dir) / "logs", self._nodes)
        self.servers = RolloutServers(args, args.run_dir, self._gpu_ids, hosts)
        with ThreadPoolExecutor(max_workers=1) as pool:  # the engines take longer than the prompts
            loading = pool.submit(self._load)
            self.servers.start(progress=functools.partial(print, flush=True))
            loading.result()
        self._check_servers_by(self.servers.check_responds)
        init_http_client(args)
        return True

    @logged
    def updatable_engines(self) -> list[EngineAddress]:
        """Engines that take the trainer's weights now; no health checks until `weights_updated`."""
        if self.servers is None:
            return []
        self.servers.pause_checks()
        return [self._address(engine) for engine in self.servers.updatable()]

    @logged
    def waiting_engines(self) -> list[EngineAddress]:
        """Engines that were started again and need the present weights; asked during `generate`."""
        if self.servers is None:
            return []
        return [self._address(engine) for engine in self.servers.waiting()]

    @logged
    def weights_updated(self, urls: list[str], left_behind: dict[str, str]) -> None:
        """An update reached the engines ``urls``, but for those left behind (and why)."""
        if self.servers is not None:
            if self._memory.complete:
                self.servers.resume_checks()
            self.servers.updated(urls, left_behind)

    def _address(self, engine: Engine) -> EngineAddress:
        node = engine.node or ray.get_runtime_context().get_node_id()
        near = engine.process is not None and engine.plan.num_nodes == 1
        size, starts = engine.plan.num_gpus, engine.starts
        return EngineAddress(engine.url, size, node, takes_memory=near, starts=starts)

    def _load(self) -> None:
        args = self.args
        self.data_source = load_function(args.data_source_path)(args)
        self.generate_rollout = load_function(args.rollout_function_path)
        self.eval_rollout = load_function(args.eval_function_path or args.rollout_function_path)

    def set_parallel_config(
        self, config: dict[str, int], critic: dict[str, int] | None = None
    ) -> None:
        """How the trainer, and a critic, divide a batch; the schedules are made for it."""
        self._parallel_config, self._critic_config = config, critic
        if critic is not None:
            self._critic_args = args_of_role(self.args, "critic")

    def num_rollout_per_epoch(self) -> int | None:
        """Rollouts in one pass over the prompts, None without a prompt set."""
        length = getattr(self.data_source, "num_prompts", lambda: None)()
        return None if not length else max(1, length // self.args.rollout_batch_size)

    @logged
    def generate(self, rollout_id: int, weight_version: int) -> RolloutResult:
        """Generate, reward, filter, and schedule rollout ``rollout_id``.

        ``weight_version`` is the trainer's version that will consume it, for the staleness metrics.
        """
        started = time.monotonic()
        groups, metrics = self._groups(rollout_id)
        # Published sources need not have it; who generates in the background commits by itself.
        if hasattr(self.data_source, "commit") and not self.generates_in_background():
            self.data_source.commit(rollout_id)
        samples = flatten(groups)
        if self.args.rollout_data_postprocess_path:
            load_function(self.args.rollout_data_postprocess_path)(self.args, samples)
        seconds = time.monotonic() - started
        metrics = measure_rollout(
            self.args, rollout_id, samples, metrics, seconds, trainer_version=weight_version
        )
        metrics["perf/rollout_seconds"] = seconds
        if self.args.debug_rollout_only:
            return RolloutResult([], metrics)
        raw_rewards, rewards = post_process_rewards(self.args, samples)
        data = convert_samples_to_train_data(self.args, samples, raw_rewards, rewards)
        batches = _put(split_by_dp(self.args, data, self._parallel_config))
        result = RolloutResult(batches, metrics, self._critic_batches(data, batches))
        metrics["perf/rollout_total_seconds"] = time.monotonic() - started
        return result

    def _critic_batches(self, data: TrainData, batches: list[ray.ObjectRef]) -> list[ray.ObjectRef]:
        """The same samples for the critic: the actor's ``batches`` where it divides them alike."""
        if self._critic_config is None:
            return []
        if self._critic_config == self._parallel_config and self.args.megatron_config_path is None:
            return batches
        return _put(split_by_dp(self._critic_args, data, self._critic_config))

    def _groups(self, rollout_id: int) -> tuple[list[Any], dict[str, float]]:
        args = self.args
        if args.load_debug_rollout_data:
            samples = load_debug_rollout_data(
                args.load_debug_rollout_data,
                rollout_id=rollout_id,
                subsample_ratio=args.load_debug_rollout_data_subsample,
            )
            return samples, {}
        self._check()
        output = call_rollout_fn(
            self.generate_rollout, args, rollout_id, self.data_source, evaluation=False
        )
        if args.save_debug_rollout_data:
            save_debug_rollout_data(
                args.save_debug_rollout_data,
                flatten(output.samples),
                rollout_id=rollout_id,
                evaluation=False,
            )
        return output.samples, dict(output.metrics or {})

    @logged
    def evaluate(self, rollout_id: int) -> dict[str, float]:
        """Run every evaluation set with the engines' present weights."""
        self._check()
        output = call_rollout_fn(
            self.eval_rollout, self.args, rollout_id, self.data_source, evaluation=True
        )
        if self.args.save_debug_rollout_data:
            samples = [s for part in output.data.values() for s in part.get("samples", [])]
            save_debug_rollout_data(
                self.args.save_debug_rollout_data, samples, rollout_id=rollout_id, evaluation=True
            )
        return measure_evaluation(self.args, rollout_id, output.data, dict(output.metrics or {}))

    @logged
    def save(self, rollout_id: int) -> None:
        """Write the data source's cursor and buffer beside the checkpoint of ``rollout_id``."""
        self.data_source.save(rollout_id)

    @logged
    def load(self, rollout_id: int) -> None:
        """Go on with the prompts after those trained on up to ``rollout_id``."""
        self.data_source.load(rollout_id)

    def generates_in_background(self) -> bool:
        """Whether the rollout function goes on generating between its calls."""
        return getattr(self.generate_rollout, "in_background", False)

    @logged
    def pause(self) -> None:
        """Hold all requests in the engines, with the tokens they have, for a weight update."""
        if self.servers is not None:
            # A paused engine answers no health check that generates; its process still counts.
            self._check_servers_by(self.servers.check)
            self.servers.pause_checks()
            pause_engines([engine.url for engine in self.servers.updatable()])

    @logged
    def go_on(self) -> None:
        """After `pause`: generate on, with the present weights."""
        if self.servers is not None:
            continue_engines([engine.url for engine in self.servers.updatable()])
            self.servers.resume_checks()
            self._check_servers_by(self.servers.check_responds)

    def _check_servers_by(self, check: Callable[[], bool]) -> None:
        for url in router_urls(self.args):
            set_liveness_check(url, check)

    @logged
    def pause_memory(self, regions: list[str]) -> None:
        """Free the engines' GPU memory; see `slime.engines.memory`."""
        assert self.servers is not None
        log_memory_turn("pause", regions)
        self.servers.check()
        self.servers.pause_checks()
        self._memory.release(self.servers.engines, regions)

    @logged
    def resume_memory(self, regions: list[str]) -> None:
        """Take it back; weights have to be sent anew."""
        assert self.servers is not None
        log_memory_turn("resume", regions)
        self.servers.check()
        self._memory.resume(self.servers.engines, regions)
        if self._memory.complete:
            self.servers.resume_checks()

    def stop(self) -> None:
        """Stop engines and router, and what still generates."""
        stop_worker(self.args)
        if self.servers is not None:
            self.servers.stop()

    def _check(self) -> None:
        if self.servers is not None:
            self.servers.check()


def _put(parts: list[RolloutData]) -> list[ray.ObjectRef]:
    """References to the parts, each of which is freed here once it is in the store."""
    return [ray.put(parts.pop(0)) for _ in range(len(parts))]
