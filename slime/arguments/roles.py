"""Settings per role: the actor, the critic and the reference may differ in training options.

The file of `--megatron-config-path`:

    megatron:
      - role: critic
        overrides: {lr: 1e-5, save: ckpt/critic}

Options keep their command-line value where a role does not override it; which nodes and GPUs a role
has is not its own to say.
"""

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import yaml

from slime.arguments.check_algorithm import check_schedule
from slime.arguments.check_batches import check_split
from slime.arguments.check_model import check_layout
from slime.arguments.check_optimizer import check_optimizer
from slime.arguments.check_ranges import refuse_out_of_range
from slime.arguments.check_sizes import check_ranks
from slime.arguments.config_file import Entry
from slime.arguments.errors import ConfigError, Problem, did_you_mean
from slime.arguments.facts import absolute_path, unbuilt_label
from slime.arguments.raw import RawArguments, apply_entries, user_path
from slime.arguments.registry import GROUPS, flags_by_key
from slime.arguments.resolve_model import padded_vocab_size, resolve_layout, resolve_precision

OPTION = "--megatron-config-path"
ROLES = ("actor", "critic", "ref")
_KEYS = ("name", "role", "overrides", "args")  # `args` is an older name of `overrides`
_PRECISIONS = ("bf16", "fp16", "fp32")
_GROUPS = ("algorithm", "train", "checkpoint", "optimizer", "precision", "parallel", "model", "moe")


def parse_megatron_role_args(
    base_args: Namespace, megatron_config_path: str, role: str
) -> Namespace:
    """A copy of the arguments with the overrides of `role` laid over them, and what follows from
    them (precision, layout, padded vocabulary) derived anew. A role the file does not name keeps
    the arguments.

    Raises:
        ConfigError: The file cannot be read, names an unknown role or option, or a value has
            the wrong type.
    """
    if role not in ROLES:
        raise ConfigError([Problem("role", role, "no such role", "one of " + ", ".join(ROLES))])
    overrides, problems = _read_overrides(megatron_config_path)
    args = _overlaid(base_args, overrides.get(role, []), problems)
    if problems:
        raise ConfigError(problems)
    return args


def args_of_role(args: Namespace, role: str) -> Namespace:
    """The arguments of a role of this run: as given, with what the file overrides for it.

    A critic trains on the value loss, on `--critic-num-nodes` x `--critic-num-gpus-per-node` ranks
    (the actor's number by default), and keeps its checkpoints in a folder `critic` of the actor's
    unless the file gives it `save` and `load` of its own.
    """
    own = _before_overrides(args, role)
    if args.megatron_config_path is None:
        return own
    return parse_megatron_role_args(own, args.megatron_config_path, role)


def _before_overrides(actor: Namespace, role: str) -> Namespace:
    """The arguments a role's overrides are laid over: the actor's, but for a critic's nature."""
    if role != "critic":
        return actor
    args = Namespace(**vars(actor))
    args.actor_load = args.load
    args.loss_type, args.recompute_loss_function = "value_loss", False
    for name in ("num_nodes", "num_gpus_per_node"):
        own = getattr(args, f"critic_{name}")
        setattr(args, f"actor_{name}", own or getattr(args, f"actor_{name}"))
    for name in ("save", "load"):
        folder = getattr(args, name)
        setattr(args, name, folder and str(PurePath(folder, "critic")))
    resolve_layout(args)
    return args


def check_roles(args: Namespace) -> list[Problem]:
    """Every mistake in the file of `--megatron-config-path`, and roles that fit no rank layout."""
    base = list(_check_role(args))
    if args.megatron_config_path is None:
        own = _check_role(_before_overrides(args, "critic")) if args.critic_own_slots else ()
        return [
            Problem(f"critic: {p.option}", p.value, p.message, p.remedy)
            for p in own
            if p not in base
        ]
    overrides, problems = _read_overrides(args.megatron_config_path)
    for role, entries in overrides.items():
        mistakes: list[Problem] = []
        role_args = _overlaid(_before_overrides(args, role), entries, mistakes)
        found = mistakes or [problem for problem in _check_role(role_args) if problem not in base]
        problems += [
            Problem(f"{OPTION} {role}: {p.option}", p.value, p.message, p.remedy) for p in found
        ]
    return problems


def _check_role(args: Namespace) -> Iterator[Problem]:
    yield from check_ranks(args)
    yield from check_layout(args)
    yield from check_split(args)
    yield from check_optimizer(args)
    if not args.debug_rollout_only:
        yield from check_schedule(args)


def _read_overrides(path: str) -> tuple[dict[str, list[Entry]], list[Problem]]:
    """Role -> its overrides, and what is wrong with the form of the file."""
    try:
        content = yaml.safe_load(user_path(path, os.environ).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return {}, [Problem(OPTION, path, f"cannot be read: {reason}", "give a YAML file")]
    items = content.get("megatron") if isinstance(content, dict) else None
    if not isinstance(items, list):
        remedy = "write megatron: [{role: critic, overrides: {...}}, ...]"
        return {}, [Problem(OPTION, path, "holds no list of roles under `megatron:`", remedy)]
    found: dict[str, list[Entry]] = {}
    problems: list[Problem] = []
    for number, item in enumerate(items):
        place = f"{Path(path).name} megatron[{number}]"
        problems += _check_item(place, item, found)
        if not problems:
            settings = item.get("overrides") or item.get("args") or {}
            found[item["role"]] = [
                Entry(str(key).replace("-", "_"), value, f"{place}.overrides")
                for key, value in settings.items()
            ]
    return found, problems


def _check_item(place: str, item: Any, found: Mapping[str, Any]) -> Iterator[Problem]:
    if not isinstance(item, Mapping):
        yield Problem(place, item, "is no mapping", "write {role: critic, overrides: {...}}")
        return
    for key in item:
        if key not in _KEYS:
            remedy = did_you_mean(str(key), _KEYS) or "known: " + ", ".join(_KEYS[:3])
            yield Problem(f"{place}.{key}", item[key], "no such key", remedy)
    role = item.get("role")
    if role not in ROLES:
        remedy = did_you_mean(str(role), ROLES) or "one of " + ", ".join(ROLES)
        yield Problem(f"{place}.role", role, "no such role", remedy)
    elif role in found:
        yield Problem(f"{place}.role", role, "stands here twice", "keep one of the two")
    for key in ("overrides", "args"):
        if not isinstance(item.get(key) or {}, Mapping):
            yield Problem(f"{place}.{key}", item[key], "is no mapping", "write option: value")
    if item.get("overrides") and item.get("args"):
        yield Problem(f"{place}.args", None, "stands beside overrides", "keep overrides")


def _overlaid(base_args: Namespace, entries: list[Entry], problems: list[Problem]) -> Namespace:
    """The arguments with overrides applied; what is wrong with them goes into `problems`."""
    raw = RawArguments(deepcopy(vars(base_args)))
    mine = []
    for entry in entries:
        if entry.key in flags_by_key() and flags_by_key()[entry.key][0].dest not in _role_options():
            message = "is not for a role to say"
            remedy = "give it on the command line or in --config"
            problems.append(Problem(f"{entry.where} {entry.key}", entry.value, message, remedy))
        else:
            mine.append(entry)
    problems += apply_entries(raw, mine, {})
    problems += refuse_out_of_range(raw)
    for flag, _ in flags_by_key().values():
        value = raw.values[flag.dest]
        if flag.path and raw.given(flag.dest) and isinstance(value, str):
            raw.values[flag.dest] = absolute_path(value, os.environ)
            if raw.values[flag.dest] is None:
                problems.append(unbuilt_label(flag.name, value))
    args = Namespace(**raw.values)
    if not problems:
        _derive(args, raw, base_args)
    return args


@cache
def _role_options() -> frozenset[str]:
    """Attributes a role may override: those of the training itself."""
    shared = {"global_batch_size", "advantage_estimator"}
    names = [flag.dest for group in GROUPS if group.name in _GROUPS for flag in group.flags]
    return frozenset(names) - shared


def _derive(args: Namespace, raw: RawArguments, base_args: Namespace) -> None:
    """What follows from the overrides."""
    precision = [name for name in _PRECISIONS if raw.given(name)]
    for name in _PRECISIONS if precision else ():
        setattr(args, name, getattr(args, name) if name in precision else False)
    resolve_precision(args)
    given = base_args.raw_options.keys() | raw.origins.keys()
    if "expert_tensor_parallel_size" not in given:
        args.expert_tensor_parallel_size = None
    resolve_layout(args)
    vocabulary = args.hf_architecture.get("vocab_size") or args.vocab_size
    if vocabulary is not None and not raw.given("vocab_size"):
        args.vocab_size = args.padded_vocab_size = padded_vocab_size(
            vocabulary, args.make_vocab_size_divisible_by, args.tensor_model_parallel_size
        )
