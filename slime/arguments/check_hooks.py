"""Checks of functions given by path: the form of the path here, import and signature in the room of
the hooks.
"""

import importlib
import re
from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.errors import Problem, option
from slime.arguments.registry import all_flags

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_HOOKS_ROOM = "slime.hooks.checks"


def hook_options() -> tuple[str, ...]:
    """Attributes that hold the import path of a function or class (or a list of them)."""
    return tuple(flag.dest for flag in all_flags() if flag.dest.endswith("_path") and not flag.path)


def check_hook_paths(args: Namespace) -> Iterator[Problem]:
    """Every import path has the form `package.module.name`."""
    for dest in hook_options():
        value = getattr(args, dest)
        for path in value if isinstance(value, list) else [value]:
            if path is not None:
                yield from _check_form(option(dest), path)
    for dataset in args.eval_datasets:
        for name in ("custom_rm_path", "custom_generate_function_path"):
            path = getattr(dataset, name)
            if path is not None and path != getattr(args, name):
                yield from _check_form(f"evaluation data {dataset.name}: {name}", path)


def _check_form(place: str, path: str) -> Iterator[Problem]:
    if not _DOTTED.fullmatch(path):
        yield Problem(
            place, path, "not the import path of a function", "write package.module.function"
        )


def check_hook_functions(args: Namespace) -> list[Problem]:
    """Import every hook and check its signature, by the room of the hooks.

    It is looked up by name because it depends on this room; a build without it (a tool that only
    reads
    configurations) leaves this check out.
    """
    try:
        checks = importlib.import_module(_HOOKS_ROOM)
    except ModuleNotFoundError as error:
        if error.name in ("slime.hooks", _HOOKS_ROOM):
            return []
        raise
    return list(checks.check_hooks(args))
