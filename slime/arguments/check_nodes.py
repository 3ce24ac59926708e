"""Checks of engines that are larger than a machine."""

from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.errors import Problem
from slime.arguments.topology import (
    EnginePlan,
    count_engines,
    has_engine_over_nodes,
    plan_models,
)

_OPTION = "--rollout-num-gpus-per-engine"
_MOST_ENGINES = 1 << 16


def check_nodes(args: Namespace) -> Iterator[Problem]:
    """Whole machines for such an engine, and what cannot be divided over machines."""
    problems = [*_check_sizes(args), *_check_count(args)]
    yield from problems
    if problems or args.debug_train_only or args.rollout_num_gpus is None:
        return
    for model in plan_models(args):
        for engine in model.engines:
            if engine.num_nodes > 1:
                yield from _check_engine(args, engine)
    if args.update_weight_mode == "delta" and has_engine_over_nodes(args):
        message = (
            f"an engine of {_OPTION} {args.rollout_num_gpus_per_engine} lies on several machines, "
            "and only the first would have the copy that deltas change"
        )
        remedy = "give --update-weight-mode full"
        yield Problem("--update-weight-mode", "delta", message, remedy)


def _check_sizes(args: Namespace) -> Iterator[Problem]:
    sizes = {_OPTION: args.rollout_num_gpus_per_engine}
    for number, model in enumerate(args.sglang_models):
        for index, group in enumerate(model.server_groups):
            if group.worker_type != "placeholder":
                place = f"--sglang-config sglang[{number}].server_groups[{index}]"
                sizes[f"{place}.num_gpus_per_engine"] = group.num_gpus_per_engine
    node = args.num_gpus_per_node
    for option, size in sizes.items():
        if size > node and size % node:
            message = f"an engine over several nodes takes whole ones (--num-gpus-per-node {node})"
            yield Problem(option, size, message, f"give a multiple of {node}")


def _check_count(args: Namespace) -> Iterator[Problem]:
    """Before each engine gets its plan: a slip of the hand should not fill the memory with them."""
    if args.debug_train_only or args.rollout_num_gpus is None:
        return
    number = count_engines(args)
    if number > _MOST_ENGINES:
        message = f"makes {number} engines, and a machine has ports for {_MOST_ENGINES} at most"
        remedy = f"give what the cluster has, or a larger {_OPTION}"
        if args.prefill_num_servers:
            yield Problem("--prefill-num-servers", args.prefill_num_servers, message, remedy)
        else:
            yield Problem("--rollout-num-gpus", args.rollout_num_gpus, message, remedy)


def _check_engine(args: Namespace, engine: EnginePlan) -> Iterator[Problem]:
    node = args.num_gpus_per_node
    shown = f"engine {engine.index} of {engine.num_gpus} GPUs"
    if engine.worker_type == "encoder":
        message = f"{shown} encodes media, which SGLang does on one machine"
        yield Problem(_OPTION, engine.num_gpus, message, f"give it at most {node} GPUs")
    if args.device == "cpu" and engine.worker_type in ("prefill", "decode"):
        message = f"{shown}: on a CPU the cache goes from engine to engine within a machine"
        yield Problem(_OPTION, engine.num_gpus, message, f"give {node} at most")
    trainer_first = not (args.colocate or args.debug_rollout_only)
    first = args.world_size + args.critic_own_slots if trainer_first else 0
    if first % node == 0 and engine.gpu_offset % node:
        message = f"{shown} begins with GPU {engine.gpu_offset} of the engines, in mid-node"
        remedy = f"list it before smaller engines, or fill their nodes of {node} GPUs"
        yield Problem("--sglang-config", args.sglang_config, message, remedy)
