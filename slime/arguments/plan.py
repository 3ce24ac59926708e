"""The plan of a run: the processes that would start and the numbers that follow."""

import os
from argparse import Namespace
from dataclasses import dataclass, field

from slime.arguments.estimate import (
    MANAGER_GIB,
    RAY_GIB,
    ROUTER_GIB,
    count_parameters,
    engine_gib,
    train_rank_gib,
)
from slime.arguments.print_config import changed_options
from slime.arguments.roles import args_of_role
from slime.arguments.topology import DEFAULT_MODEL, EnginePlan, ModelPlan, plan_models

FREE_PORT = "free loopback port"


@dataclass(frozen=True)
class Process:
    """One process, or a family of processes that belong together.

    Attributes:
        name: `train rank 0`, `engine 1`, `router`.
        role: Its place: coordinates of a rank, GPUs of an engine.
        ports: What it listens on.
        memory_gib: Estimate without activations: host memory on a CPU, else memory of one GPU.
    """

    name: str
    role: str
    ports: str = ""
    memory_gib: float = 0.0


@dataclass(frozen=True)
class Plan:
    """What `--dry-run` shows.

    Attributes:
        notes: Worth knowing.
        warnings: Worth changing; a run says them too.
    """

    run_dir: str
    device: str
    options: dict[str, dict[str, object]]
    processes: tuple[Process, ...]
    numbers: dict[str, object]
    notes: tuple[str, ...] = field(default_factory=tuple)
    warnings: tuple[str, ...] = field(default_factory=tuple)


def build_plan(args: Namespace) -> Plan:
    """The plan of resolved arguments; nothing is started."""
    processes = (*_ray(args), *_train_ranks(args), *_rollout_processes(args))
    return Plan(
        run_dir=args.run_dir,
        device=args.device,
        options=changed_options(args),
        processes=processes,
        numbers=_numbers(args),
        notes=tuple(_notes(args, processes)),
        warnings=tuple(_warnings(args, processes)),
    )


def rank_coordinates(args: Namespace, rank: int) -> dict[str, int]:
    """Megatron's order of ranks: tensor runs fastest, then context, data, pipeline."""
    coordinates = {}
    sizes = (
        ("tp", args.tensor_model_parallel_size),
        ("cp", args.context_parallel_size),
        ("dp", args.data_parallel_size),
        ("pp", args.pipeline_model_parallel_size),
    )
    for name, size in sizes:
        coordinates[name] = rank % size
        rank //= size
    return coordinates


def _ray(args: Namespace) -> list[Process]:
    if args.ray_address:
        return [Process("Ray", f"joined at {args.ray_address}, not started")]
    return [
        Process("Ray", "head of this run, in its own temporary directory", FREE_PORT + "s", RAY_GIB)
    ]


def _train_ranks(args: Namespace) -> list[Process]:
    if args.debug_rollout_only:
        return []
    roles = ("actor", "critic") if args.use_critic else ("actor",)
    ranks = []
    for role in roles:
        own = args_of_role(args, role)
        memory = train_rank_gib(own)
        for rank in range(own.world_size):
            place = " ".join(
                f"{name}{index}" for name, index in rank_coordinates(own, rank).items()
            )
            backend = f"{own.distributed_backend}, {own.dtype}"
            port = f"{FREE_PORT} (rendezvous)" if rank == 0 else ""
            name = f"{'critic' if role == 'critic' else 'train'} rank {rank}"
            ranks.append(Process(name, f"{role} {place}, {backend}", port, memory))
    return ranks


def _rollout_processes(args: Namespace) -> list[Process]:
    on_cpu = args.device == "cpu"
    processes = [
        Process("rollout manager", "data, rewards, engines", "", MANAGER_GIB if on_cpu else 0.0)
    ]
    if args.debug_train_only:
        return processes
    models = plan_models(args)
    for model in models:
        name = "router" if model.name == DEFAULT_MODEL else f"router of {model.name}"
        if args.sglang_router_ip:
            address = f"{args.sglang_router_ip}:{args.sglang_router_port}"
            processes.append(Process(name, "joined, not started", address))
        else:
            parts = ", prefill and decode apart" if model.disaggregated else ""
            memory = ROUTER_GIB if on_cpu else 0.0
            processes.append(Process(name, "sglang-router" + parts, FREE_PORT, memory))
    for model in models:
        for engine in model.engines:
            processes += [_engine(args, model, engine), *_other_nodes(args, engine)]
    return processes


def _engine(args: Namespace, model: ModelPlan, engine: EnginePlan) -> Process:
    name = f"engine {engine.index}"
    if engine.address:
        return Process(name, "joined, not started", engine.address.removeprefix("http://"))
    dtype = engine.overrides.get("dtype", args.sglang_server_args.get("dtype"))
    over = f" over {engine.num_nodes} nodes" if engine.num_nodes > 1 else ""
    role = f"SGLang tp{engine.num_gpus}{over}, {dtype}"
    if model.name != DEFAULT_MODEL or engine.worker_type != "regular":
        role += f", {model.name} {engine.worker_type}"
    role += "" if model.update_weights else ", frozen"
    role += f", {args.engine_threads} thread(s)" if args.device == "cpu" else ""
    port = FREE_PORT if engine.num_nodes == 1 else f"{FREE_PORT}s (HTTP, rendezvous)"
    return Process(name, role, port, engine_gib(args, 1 / engine.num_nodes))


def _other_nodes(args: Namespace, engine: EnginePlan) -> list[Process]:
    """The processes of an engine on its other machines, which serve no requests."""
    size, processes = engine.gpus_per_node, []
    for node in range(1, engine.num_nodes):
        ranks = f"tp ranks {node * size} to {node * size + size - 1}"
        ranks = ranks if size > 1 else f"tp rank {node}"
        memory = engine_gib(args, 1 / engine.num_nodes)
        processes.append(Process(f"engine {engine.index} node {node}", ranks, FREE_PORT, memory))
    return processes


def _numbers(args: Namespace) -> dict[str, object]:
    samples, context = args.samples_per_rollout, args.rollout_max_context_len
    prompt, response = args.rollout_max_prompt_len, args.rollout_max_response_len
    longest = min(context, (prompt or context) + (response or context)) if context else None
    numbers: dict[str, object] = {
        "parameters": count_parameters(args) or None,
        "rollouts": args.num_rollout,
        "prompts per rollout": args.rollout_batch_size,
        "samples per rollout": samples,
        "steps per rollout": args.num_steps_per_rollout,
        "samples per step": args.global_batch_size,
        "optimizer steps": args.train_iters,
        "data-parallel ranks": args.data_parallel_size,
        "longest sequence (tokens)": longest,
        "most tokens per rollout": samples * longest if longest else None,
        "most new tokens per rollout": samples * response if response else None,
    }
    if args.use_dynamic_batch_size:
        numbers["micro-batch bound (tokens)"] = args.max_tokens_per_gpu * args.context_parallel_size
    else:
        numbers["micro-batch (samples)"] = args.micro_batch_size
    if args.eval_datasets:
        numbers["evaluation sets"] = ", ".join(dataset.name for dataset in args.eval_datasets)
    if args.eval_interval and args.num_rollout:
        numbers["evaluations"] = args.num_rollout // args.eval_interval + (
            not args.skip_eval_before_train
        )
    return {name: value for name, value in numbers.items() if value is not None}


def _notes(args: Namespace, processes: tuple[Process, ...]) -> list[str]:
    if args.device != "cpu":
        return []
    notes = [
        f"all processes together need about {sum(p.memory_gib for p in processes):.1f} GiB "
        "before activations"
    ]
    bound = args.max_tokens_per_gpu
    longest = args.rollout_max_context_len
    if args.use_dynamic_batch_size and longest and bound * args.context_parallel_size < longest:
        notes.append(
            f"a sample may have {longest} tokens, above the bound of a micro-batch: it then "
            "goes alone"
        )
    return notes


def _warnings(args: Namespace, processes: tuple[Process, ...]) -> list[str]:
    if args.device != "cpu":
        return []
    cores, each = len(os.sched_getaffinity(0)), args.train_threads
    ranks = sum(" rank " in process.name for process in processes)
    if ranks * each <= cores:
        return []
    return [
        f"{ranks} train ranks with {each} threads each share {cores} cores: expect them to be slow "
        "(--actor-num-gpus-per-node, --train-threads)"
    ]


def render(plan: Plan) -> str:
    """The plan as text for a person."""
    lines = [
        f"run directory  {plan.run_dir}",
        f"device         {plan.device}",
        "",
        "options that are not the default",
    ]
    for group, options in plan.options.items():
        lines.append(f"  {group}")
        lines += [f"    {name:<34} {_short(value)}" for name, value in options.items()]
    lines += ["", "processes"]
    names = max(len(process.name) for process in plan.processes)
    roles = max(len(process.role) for process in plan.processes)
    for process in plan.processes:
        memory = f"~{process.memory_gib:.2f} GiB" if process.memory_gib else ""
        row = f"  {process.name:<{names}}  {process.role:<{roles}}  {memory:>10}  {process.ports}"
        lines.append(row.rstrip())
    lines += ["", "numbers"]
    lines += [f"  {name:<36} {_number(value)}" for name, value in plan.numbers.items()]
    for title, texts in {"notes": plan.notes, "warnings": plan.warnings}.items():
        if texts:
            lines += ["", title] + [f"  {text}" for text in texts]
    return "\n".join(lines)


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 90 else text[:87] + "..."
