"""The command lines and the environment of engines and router, as pure functions of the resolved
arguments.

What the user passes through (`--sglang-*`, `--router-*`) always wins over what is chosen here.
"""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slime.arguments.model_config import read_model_config
from slime.arguments.topology import EnginePlan
from slime.engines import pull_weights_plugin, routed_experts_plugin

LOOPBACK = "127.0.0.1"
# Imported by the engine when the trainer hands it weights through memory.
MEMORY_LOADER = "slime.weights.memory.load"
_NO_PROXY = ("no_proxy", "NO_PROXY")
_SOURCE_ROOT = Path(__file__).parents[2]
_PLUGINS = Path(__file__).parent / "sglang_plugins"  # lets SGLang find our plug-in's entry point
_FIRST_BOOTSTRAP_PORT = 8998
_MAX_CPU_REQUESTS = 256  # concurrent requests beyond which a CPU only adds latency
_CPU_KV_BYTES = 2 * 1024**3
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def engine_command(
    args: Namespace,
    plan: EnginePlan,
    port: int,
    encoder_urls: Sequence[str] = (),
    address: str = LOOPBACK,
    node_rank: int = 0,
    meet_at: str = "",
) -> list[str]:
    """Command of an engine, serving on `port` of `address`: the loopback interface, unless the
    run's engines are on several machines.

    `encoder_urls`: engines that encode media for this one; with any, it holds no encoder itself.
    `node_rank`: which of its machines this is; all of them meet at `meet_at` (host:port), and only
    the first serves requests.
    """
    options: dict[str, Any] = {
        "model_path": plan.model_path,
        "dtype": args.dtype,
        "tp_size": plan.num_gpus,
        "random_seed": args.rollout_seed + plan.index,
        "log_level_http": "warning",
        "custom_weight_loader": [MEMORY_LOADER],
        **_role_options(plan, encoder_urls),
    }
    if args.use_rollout_routing_replay:
        options["enable_return_routed_experts"] = True
    if args.device == "cpu":
        options |= cpu_options(args, plan)
    else:
        options["base_gpu_id"] = 0  # of those that `engine_environment` makes visible
        if args.offload_rollout:
            options["enable_memory_saver"] = True
    given = {**args.sglang_server_args, **plan.overrides}
    options |= {key: value for key, value in given.items() if value is not None}
    options |= {"host": address, "port": port}
    if plan.num_nodes > 1:
        options |= {"nnodes": plan.num_nodes, "node_rank": node_rank, "dist_init_addr": meet_at}
    module = "slime.engines.cpu_launch" if args.device == "cpu" else "sglang.launch_server"
    return [sys.executable, "-m", module, *to_flags(options)]


def _role_options(plan: EnginePlan, encoder_urls: Sequence[str]) -> dict[str, Any]:
    """Options of engines that do only a part of the work."""
    options: dict[str, Any] = {}
    if plan.worker_type in ("prefill", "decode"):
        options["disaggregation_mode"] = plan.worker_type
    if plan.worker_type == "prefill":
        options["disaggregation_bootstrap_port"] = bootstrap_port(plan)
    if plan.worker_type == "encoder":
        options["encoder_only"] = True
    elif encoder_urls:
        options |= {"language_only": True, "encoder_urls": list(encoder_urls)}
    return options


def bootstrap_port(plan: EnginePlan) -> int:
    """Where a prefill engine tells decode engines how to fetch what it computed."""
    return _FIRST_BOOTSTRAP_PORT + plan.index


def cpu_options(args: Namespace, plan: EnginePlan) -> dict[str, Any]:
    """What SGLang's CPU path needs, with memory bounded by the sizes of the run instead of by the
    machine."""
    requests = max_running_requests(args, plan.peers)
    alone = {"max_running_requests": 1, "disable_radix_cache": True}
    return {
        "device": "cpu",
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
        "disable_cuda_graph": True,
        "sleep_on_idle": True,  # else the idle scheduler spins and takes the core the trainer needs
        "disable_overlap_schedule": True,
        "max_running_requests": requests,
        "max_total_tokens": max_total_tokens(args, _architecture(args, plan), requests),
        **(alone if args.sglang_server_args.get("enable_deterministic_inference") else {}),
    }


def _architecture(args: Namespace, plan: EnginePlan) -> Mapping[str, Any]:
    """What config.json of the engine's model says."""
    if plan.model_path == args.hf_checkpoint:
        architecture: Mapping[str, Any] = args.hf_architecture
        return architecture
    return read_model_config(Path(plan.model_path))


def max_running_requests(args: Namespace, peers: int) -> int:
    """Requests that one of `peers` engines runs at once: its share of a rollout, at most
    `_MAX_CPU_REQUESTS`."""
    groups = max(args.rollout_batch_size or 1, args.over_sampling_batch_size or 0)
    samples = groups * args.n_samples_per_prompt
    share = -(-samples // max(peers, 1))
    return max(8, min(share, _MAX_CPU_REQUESTS))


def max_total_tokens(args: Namespace, model: Mapping[str, Any], requests: int) -> int:
    """Tokens of the key/value cache: all running requests at full length, within
    `_CPU_KV_BYTES`."""
    context = int(model["max_position_embeddings"])
    longest = args.rollout_max_context_len or context
    if args.rollout_max_prompt_len and args.rollout_max_response_len:
        longest = min(longest, args.rollout_max_prompt_len + args.rollout_max_response_len)
    longest = min(longest, context)
    heads = model.get("num_key_value_heads") or model["num_attention_heads"]
    head_dim = model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"]
    token_bytes = 2 * model["num_hidden_layers"] * heads * head_dim * _BYTES[args.dtype]
    return max(context + 1, min(requests * longest, _CPU_KV_BYTES // token_bytes))


def server_environment(inherited: Mapping[str, str], *first: Path) -> dict[str, str]:
    """`inherited`, with this package (after the folders `first`) importable from any folder, and
    with no proxy between the servers: SGLang and the router would ask it for each other."""
    path = [*map(str, first), str(_SOURCE_ROOT), *inherited.get("PYTHONPATH", "").split(":")]
    entries = dict.fromkeys(entry for entry in path if entry)
    direct = dict.fromkeys(
        host.strip()
        for name in _NO_PROXY
        for host in [*inherited.get(name, "").split(","), LOOPBACK, "localhost"]
        if host.strip()
    )
    return {
        **inherited,
        "PYTHONPATH": ":".join(entries),
        "PYTHONUNBUFFERED": "1",
        # `*` means all only when it stands alone.
        **dict.fromkeys(_NO_PROXY, "*" if "*" in direct else ",".join(direct)),
    }


def engine_environment(
    args: Namespace,
    plan: EnginePlan,
    inherited: Mapping[str, str],
    scratch: Path,
    gpu_ids: Sequence[int] = (),
    address: str = LOOPBACK,
    interface: str = "lo",
) -> dict[str, str]:
    """Environment of an engine: on a CPU also threads and what makes SGLang take its CPU path.

    `scratch` is a folder of this engine alone, `gpu_ids` are its devices on this machine, which the
    others reach at `address`, through the network `interface`.
    """
    environment = server_environment(inherited, _PLUGINS)
    cores = f"0-{(os.cpu_count() or 1) - 1}"
    if args.device == "cpu":
        environment |= {
            "OMP_NUM_THREADS": str(args.engine_threads),
            "SGLANG_USE_CPU_ENGINE": "1",
            "GLOO_SOCKET_IFNAME": interface,
            # Where prefill and decode engines meet.
            "SGLANG_HOST_IP": address,
            # SGLang compiles some of its routers: slow to start, and not without triton.
            "TORCH_COMPILE_DISABLE": "1",
            # One entry per rank: any core will do. Without it SGLang wants a NUMA node per rank.
            "SGLANG_CPU_OMP_THREADS_BIND": "|".join([cores] * plan.num_gpus),
        }
        if plan.num_nodes == 1:
            # Over TCP, torch's store of the ranks would listen on every interface of the machine.
            ranks = f"file://{scratch}/ranks"
            environment["SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"] = ranks
        if args.sglang_server_args.get("enable_deterministic_inference"):
            environment["SGLANG_ENABLE_DETERMINISTIC_INFERENCE"] = "1"
    elif plan.num_nodes > 1 and interface:
        # Without it gloo takes the address of the host's name, on many machines a loopback one.
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)
    if args.use_rollout_routing_replay:
        environment[routed_experts_plugin.VARIABLE] = "1"
    if args.update_weight_mode == "delta":
        copy = Path(args.update_weight_local_checkpoint_dir).absolute()
        environment[pull_weights_plugin.VARIABLE] = str(copy)
    if gpu_ids:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpu_ids))
    return environment | {
        "TMPDIR": str(scratch),  # SGLang leaves its sockets' files there
        # A model is a local folder; without this a missing file would be looked for on the network.
        "HF_HUB_OFFLINE": "1",
        # The router asks for /health every second; it should not cost a generated token each time.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
    }


def router_command(
    args: Namespace, port: int, prometheus_port: int, disaggregated: bool = False
) -> list[str]:
    """Command of a router, serving on `port` of the loopback interface."""
    options: dict[str, Any] = {
        # The router's own defaults notice a dead engine only after minutes.
        "health_check_interval_secs": 1,
        "health_failure_threshold": 1,
        "health_success_threshold": 1,
        "worker_startup_check_interval": 1,
        "shutdown_grace_period_secs": 1,
        "log_level": "warn",
        # The samples of a prompt travel together, so prefixes are shared in one engine under any
        # policy.
        "policy": "round_robin",
    }
    given = {key: value for key, value in args.router_args.items() if value is not None}
    if not any(key.startswith("cb_") for key in given):
        # Ten connections that an idle engine has closed open it, for as long as a request is tried
        # again here; the health check every second tells whether an engine is well.
        options["disable_circuit_breaker"] = True
    options |= given
    if disaggregated:
        options["pd_disaggregation"] = True
    options |= {
        "host": LOOPBACK,
        "port": port,
        "prometheus_host": LOOPBACK,
        "prometheus_port": prometheus_port,
    }
    return [sys.executable, "-m", "slime.engines.router_launch", *to_flags(options)]


def to_flags(options: Mapping[str, Any]) -> list[str]:
    """`{"a_b": 1, "c": True, "d": False, "e": [1, 2]}` -> `["--a-b", "1", "--c", "--e", "1",
    "2"]`."""
    flags: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            flags += [flag] if value else []
        elif isinstance(value, list | tuple):
            flags += [flag, *map(str, value)]
        else:
            flags += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags
