"""Checks of the engines: how many GPUs they have, which models they serve."""

from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.check_nodes import check_nodes
from slime.arguments.check_sglang_config import OPTION, check_models
from slime.arguments.errors import Problem, option
from slime.arguments.facts import Facts


def check_engines(args: Namespace, facts: Facts) -> Iterator[Problem]:
    """Engines against their GPUs, with the models of --sglang-config."""
    gpus, each = args.rollout_num_gpus, args.rollout_num_gpus_per_engine
    if gpus is None:
        remedy = "say how many GPUs generate, or share those of the trainer with --colocate"
        yield Problem("--rollout-num-gpus", None, "needed", remedy)
    elif not (args.debug_train_only or args.sglang_models) and (gpus < each or gpus % each):
        message = f"is no multiple of --rollout-num-gpus-per-engine {each}"
        yield Problem("--rollout-num-gpus", gpus, message, f"give a multiple of {each}")
    yield from _check_prefill_servers(args)
    if facts.sglang_models is not None and not args.debug_train_only:
        problems = list(check_models(facts.sglang_models))
        yield from problems or _check_model_sizes(args)
        yield from _check_contradictions(args)
    yield from check_nodes(args)


def _check_model_sizes(args: Namespace) -> Iterator[Problem]:
    """The GPUs of the models: groups against their engines, the sum against the run's."""
    for number, model in enumerate(args.sglang_models):
        kinds = {group.worker_type for group in model.server_groups}
        if not kinds & {"regular", "decode"}:
            place = f"{OPTION} sglang[{number}].server_groups"
            message = f"has only {' and '.join(sorted(kinds))} groups: nothing generates"
            yield Problem(place, None, message, "add a regular group")
        for index, group in enumerate(model.server_groups):
            each = group.num_gpus_per_engine
            if group.worker_type != "placeholder" and group.num_gpus % each:
                place = f"{OPTION} sglang[{number}].server_groups[{index}].num_gpus"
                message = f"cannot be split into engines of {each} (num_gpus_per_engine)"
                yield Problem(place, group.num_gpus, message, f"give a multiple of {each}")
    sizes = {model.name: model.total_num_gpus() for model in args.sglang_models}
    total = sum(sizes.values())
    if args.rollout_num_gpus is not None and total != args.rollout_num_gpus:
        terms = " + ".join(f"{name} {size}" for name, size in sizes.items())
        message = f"has {terms} = {total} GPUs, but --rollout-num-gpus is {args.rollout_num_gpus}"
        yield Problem(OPTION, args.sglang_config, message, f"give --rollout-num-gpus {total}")
    if not any(model.update_weights for model in args.sglang_models):
        message = "no model gets the trained weights"
        remedy = "leave out model_path of the model that is trained, or say update_weights: true"
        if not args.debug_rollout_only:
            yield Problem(OPTION, args.sglang_config, message, remedy)


def _check_contradictions(args: Namespace) -> Iterator[Problem]:
    """Other options that say which engines there are."""
    for dest in ("prefill_num_servers", "rollout_external_engine_addrs"):
        if getattr(args, dest) is not None:
            name = option(dest)
            yield Problem(name, getattr(args, dest), f"contradicts {OPTION}", "keep one of the two")


def _check_prefill_servers(args: Namespace) -> Iterator[Problem]:
    """`--prefill-num-servers` leaves engines that decode."""
    engines, prefill = args.rollout_num_engines, args.prefill_num_servers
    if prefill is None or args.sglang_config is not None or 0 < prefill < engines:
        return
    message = "must be at least 1"
    if prefill > 0:
        message = f"leaves no engine that decodes: there are {engines}"
    remedy = f"give 1 to {engines - 1}" if engines > 1 else "give more --rollout-num-gpus"
    yield Problem("--prefill-num-servers", prefill, message, remedy)
