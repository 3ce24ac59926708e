"""The whole published interface, name by name: what exists is importable from its published path
and takes the published parameters; what does not exist yet stands in NOT_YET, which only shrinks.
"""

import ast
import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from slime.published_paths import PUBLISHED

_MODULE = re.compile(r"### `([\w.]+)`")
_FUNCTION = re.compile(r"- `(?:async )?(\w+)(\(.*)`")
_OTHER = re.compile(r"- (?:class )?`(\w+)(?:\(.*\))?`")
_NESTED = re.compile(r"  - nested class `(\w+)`: (.*)")
_METHOD = re.compile(r"  - `(?:async )?(\w+)(\(.*)`")

_MODEL = "conversion of this model family"
_EXTERNAL = "engines of one group as actors on several nodes"
# Published module or name -> what it waits for.
NOT_YET: dict[str, str] = {
    **dict.fromkeys(
        (
            f"slime.agent.{name}"
            for name in (
                "adapters",
                "adapters.common",
                "aiohttp_threaded",
                "harness",
                "parsing",
                "sandbox",
                "trajectory",
            )
        ),
        "agents and their endpoints",
    ),
    **dict.fromkeys(
        (
            f"slime.backends.megatron_utils.{name}"
            for name in (
                "hf_to_megatron.qwen.minimax_m2_hf_tensor",
                "hf_to_megatron.qwen3_5",
                "hf_to_megatron.qwen3_next",
                "megatron_to_hf.minimax_m2",
                "megatron_to_hf.qwen3_5",
                "megatron_to_hf.qwen3_next",
            )
        ),
        _MODEL,
    ),
    "slime.backends.megatron_utils.server.arguments": "a Megatron server for teachers",
    "slime.ray.rollout": _EXTERNAL,
    "slime.observability.logging_utils": "trackers chosen by name",
    "slime.observability.trace_utils": "traces",
    "slime.utils.misc.SingletonMeta": "state shared over a process",
    "slime.utils.processing_utils.build_processor_kwargs": "multimodal rollouts",
    "slime.utils.processing_utils.encode_image_for_rollout_engine": "multimodal rollouts",
}
# Published name -> why its parameters differ.
DIFFERS: dict[str, str] = {
    "slime.ray.placement_group.create_rollout_manager": "takes the slots of the first function",
    "slime.ray.placement_group.create_training_models": "takes the slots of the first function",
}


class Name(NamedTuple):
    """A published name: `signature` of functions and methods, `fields` of dataclasses."""

    module: str
    name: str
    signature: str = ""
    fields: str = ""

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def is_there(self) -> bool:
        parts = self.path.split(".")
        return not any(".".join(parts[:end]) in NOT_YET for end in range(len(parts) + 1))


def published() -> Iterator[Name]:
    module = owner = ""
    for line in (Path(__file__).parent / "published_api.md").read_text().splitlines():
        if found := _MODULE.match(line):
            module = found[1]
        elif line.startswith("  - fields: "):
            yield Name(module, owner, fields=line.removeprefix("  - fields: "))
        elif found := _METHOD.match(line):
            yield Name(module, f"{owner}.{found[1]}", found[2])
        elif line.startswith("- class") and (found := _OTHER.match(line)):
            owner = found[1]
            yield Name(module, owner)
        elif found := _NESTED.match(line):
            yield Name(module, f"{owner}.{found[1]}", fields=found[2])
        elif found := _FUNCTION.match(line) or _OTHER.match(line):
            yield Name(module, found[1], found[2] if len(found.groups()) > 1 else "")


NAMES = list(published())


def find(name: Name) -> Any:
    found: Any = importlib.import_module(name.module)
    for part in name.name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", [n for n in NAMES if n.is_there], ids=lambda n: n.path)
def test_what_exists_is_the_rooms_object_and_takes_what_is_published(name: Name) -> None:
    found = find(name)
    entry = PUBLISHED.get(name.module)
    outer = name.name.split(".")[0]
    room = entry if isinstance(entry, str) else (entry or {}).get(outer, name.module)
    published_module = importlib.import_module(name.module)
    assert getattr(published_module, outer) is getattr(importlib.import_module(room), outer)
    if name.signature and name.path not in DIFFERS and not isinstance(found, property):
        assert mismatch(found, name.signature) is None
    if name.fields:
        assert missing_fields(found, name.fields) == []


@pytest.mark.parametrize("path", NOT_YET)
def test_what_is_not_there_yet_is_published_and_absent(path: str) -> None:
    """An entry that has become importable leaves the table."""
    waiting = [n for n in NAMES if f"{n.path}.".startswith(f"{path}.")]
    assert waiting
    for name in waiting:
        with pytest.raises((ImportError, AttributeError)):
            find(name)


@pytest.mark.parametrize("path", DIFFERS)
def test_what_differs_still_does(path: str) -> None:
    (name,) = (n for n in NAMES if n.path == path)
    assert mismatch(find(name), name.signature) is not None


def test_every_line_of_the_list_is_read() -> None:
    lines = (Path(__file__).parent / "published_api.md").read_text().splitlines()
    modules = [line for line in lines if line.startswith("#")]
    assert len({name.module for name in NAMES}) == len(modules) == 76
    assert len(NAMES) == len([line for line in lines if line]) - len(modules)


def missing_fields(found: Any, fields: str) -> list[str]:
    """Published fields (`a: int = 1`; or `A = 'a'` of an enum) that are not there as published."""
    if issubclass(found, enum.Enum):
        values = {f"{member.name} = {member.value!r}" for member in found}
        return [one for one in re.findall("`([^`]+)`", fields) if one not in values]
    known = {field.name: field for field in dataclasses.fields(found)}
    wrong = []
    for one in re.findall("`([^`]+)`", fields):
        name, _, default = one.partition(":")[0].strip(), *one.partition(" = ")[1:]
        if name not in known:
            wrong.append(one)
        elif default and "(" not in default and "." not in default.lstrip("0123456789"):
            if known[name].default != ast.literal_eval(default):
                wrong.append(one)
    return wrong


def mismatch(found: Any, signature: str) -> str | None:
    """How the parameters of `found` differ from a published signature; further ones are fine."""
    code = ast.parse(f"def f{signature}: ...").body[0]
    assert isinstance(code, ast.FunctionDef)
    wanted = code.args
    actual = inspect.signature(found).parameters
    names = [p.arg for p in (*wanted.posonlyargs, *wanted.args)]
    if inspect.ismethod(found) and names and names[0] in ("self", "cls"):
        names = names[1:]
    by_position = [
        p.name for p in actual.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)
    ]
    takes_all = any(p.kind is p.VAR_POSITIONAL for p in actual.values())
    if not takes_all and by_position[: len(names)] != names:
        return f"positional parameters {by_position}, published {names}"
    takes_any = any(p.kind is p.VAR_KEYWORD for p in actual.values())
    missing = [p.arg for p in wanted.kwonlyargs if p.arg not in actual and not takes_any]
    if missing:
        return f"no parameters {missing}"
    required = {
        p.name
        for p in actual.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    defaults = dict(zip(reversed(names), reversed(wanted.defaults), strict=False))
    defaults |= {
        p.arg: default
        for p, default in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True)
        if default is not None
    }
    published_names = {*names, *(p.arg for p in wanted.kwonlyargs)}
    if further := required - published_names:
        return f"further parameters without default: {sorted(further)}"
    for parameter, default in defaults.items():
        if parameter not in actual:
            continue
        if actual[parameter].default != ast.literal_eval(default):
            return f"default of {parameter} is {actual[parameter].default!r}"
    return None
