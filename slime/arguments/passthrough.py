"""`--sglang-X` and `--router-X`: options that slime hands to the engines and to the router as they
are.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from slime.arguments.errors import Problem, did_you_mean
from slime.arguments.installed_options import router_options, sglang_options


@dataclass(frozen=True)
class Target:
    """A program that gets options passed through.

    Attributes:
        prefix: Of the flags and of flat YAML keys, and the name of the YAML group.
        dest: The attribute of the arguments that holds the dict.
        program: Its name in messages.
        known: Its options; an empty mapping means it is not installed, and nothing is checked.
        managed: Options that slime sets itself -> what to use instead.
    """

    prefix: str
    dest: str
    program: str
    known: Callable[[], Mapping[str, str]]
    managed: Mapping[str, str] = field(default_factory=dict)


_CHECKED: dict[str, tuple[Any, str]] = {
    "bool": (bool, "true or false"),
    "int": (int, "an integer"),
    "float": ((int, float), "a number"),
}
_FREE_PORT = "slime picks a free loopback port itself"
_ENGINE_SIZE = "use --rollout-num-gpus-per-engine"

TARGETS = (
    Target(
        "sglang",
        "sglang_server_args",
        "SGLang",
        sglang_options,
        {
            "model_path": "use --hf-checkpoint",
            "model": "use --hf-checkpoint",
            "host": "engines bind to the loopback address",
            "port": _FREE_PORT,
            "nccl_port": _FREE_PORT,
            "dist_init_addr": _FREE_PORT,
            "tp": _ENGINE_SIZE,
            "tp_size": _ENGINE_SIZE,
            "tensor_parallel_size": _ENGINE_SIZE,
            "nnodes": _ENGINE_SIZE,
            "node_rank": _ENGINE_SIZE,
            "base_gpu_id": "slime gives every engine its GPUs",
            "device": "use --device",
        },
    ),
    Target(
        "router",
        "router_args",
        "sglang-router",
        router_options,
        {
            "worker_urls": "for running engines use --rollout-external-engine-addrs",
            "host": "use --sglang-router-ip for a router that already runs",
            "port": "use --sglang-router-port for a router that already runs",
        },
    ),
)


def take_from_command_line(
    argv: Sequence[str], own: frozenset[str]
) -> tuple[list[str], list[tuple[Target, str, list[str]]]]:
    """Split the words into those of slime's parser and the options that pass through.

    Args:
        argv: The command line.
        own: slime's own flags, which win over the prefixes.

    Returns:
        The other words, and (target, option with underscores, its values as text).
    """
    rest: list[str] = []
    taken: list[tuple[Target, str, list[str]]] = []
    current: list[str] | None = None
    for word in argv:
        name, equals, value = word.partition("=")
        target = None if name in own else _target_of(name)
        if target is not None:
            current = [value] if equals else []
            taken.append((target, name[len(target.prefix) + 3 :].replace("-", "_"), current))
        elif word.startswith("--") or current is None:
            current = None
            rest.append(word)
        else:
            current.append(word)
    return rest, taken


def yaml_target(key: str) -> tuple[Target, str] | None:
    """The target and option of a flat YAML key such as `sglang_mem_fraction_static`."""
    for target in TARGETS:
        if key.startswith(target.prefix + "_"):
            return target, key[len(target.prefix) + 1 :]
    return None


def convert(target: Target, option: str, words: Sequence[str]) -> Any:
    """The value of the words, by the program's own type for the option, else as YAML would read
    them.
    """
    if not words:
        return True
    kind = target.known().get(option, "")
    values = [_convert_word(kind, word) for word in words]
    return values if "List" in kind or len(values) > 1 else values[0]


def check(target: Target, option: str, value: Any, where: str) -> Problem | None:
    """Whether the program has such an option and slime does not set it itself."""
    flag = f"--{target.prefix}-{option.replace('_', '-')}"
    if option in target.managed:
        message = f"slime sets this option of {target.program} itself ({where})"
        return Problem(flag, value, message, target.managed[option])
    known = target.known()
    if option in known:
        expected = expected_instead(known[option], value)
        return Problem(flag, value, f"expected {expected} ({where})") if expected else None
    if not known or option.removeprefix("no_") in known:
        return None
    remedy = did_you_mean(flag, [f"--{target.prefix}-{name.replace('_', '-')}" for name in known])
    message = f"the installed {target.program} has no such option ({where})"
    return Problem(flag, value, message, remedy or f"see {target.program}'s --help")


def expected_instead(kind: str, value: Any) -> str:
    """What a value of this type must be, in words; empty where `value` is right or the type tells
    nothing.
    """
    if value is None:
        return ""
    if choices := _choices(kind):
        return "" if value in choices else "one of " + ", ".join(map(str, choices))
    types, words = _CHECKED.get(_inside_optional(kind), (object, ""))
    is_bool = isinstance(value, bool)
    return "" if isinstance(value, types) and (is_bool <= (types in (bool, object))) else words


def _inside_optional(kind: str) -> str:
    return re.sub(r"^Optional\[(.*)\]$", r"\1", kind)


def _choices(kind: str) -> list[Any]:
    """The values of a Literal type; [] for any other."""
    kind = _inside_optional(kind)
    return list(ast.literal_eval(kind.removeprefix("Literal"))) if kind[:8] == "Literal[" else []


def _target_of(name: str) -> Target | None:
    return next((t for t in TARGETS if name.startswith(f"--{t.prefix}-")), None)


def _convert_word(kind: str, word: str) -> Any:
    if kind in ("str", "Optional[str]", "List[str]", "Optional[List[str]]"):
        return word
    if word in _choices(kind):
        return word
    if word.startswith("0") and word.isdigit() and word != "0":
        return word  # YAML 1.1 would read an octal number
    try:
        value = yaml.safe_load(word)
    except yaml.YAMLError:
        return word
    if "float" in kind and not isinstance(value, float):  # YAML 1.1 reads 1e-4 as a text
        try:
            return float(word)
        except ValueError:
            return word
    return value if isinstance(value, (bool, int, float, dict, list)) else word
