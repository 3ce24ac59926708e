"""The check of functions given by path, which the room of the hooks makes."""

import importlib
from argparse import Namespace

from slime.arguments.errors import Problem

_HOOKS_ROOM = "slime.hooks.checks"


def check_hook_functions(args: Namespace) -> list[Problem]:
    """Import every hook and check its signature, by the room of the hooks.

    It is looked up by name because it depends on this room; a build without it (a tool that only
    reads configurations) leaves this check out.
    """
    try:
        checks = importlib.import_module(_HOOKS_ROOM)
    except ModuleNotFoundError as error:
        if error.name in ("slime.hooks", _HOOKS_ROOM):
            return []
        raise
    return list(checks.check_hooks(args))
