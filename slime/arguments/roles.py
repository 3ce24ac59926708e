"""Settings per role: the actor, the critic and the reference may differ in Megatron options."""

import os
from argparse import Namespace
from copy import deepcopy
from pathlib import Path

from slime.arguments.config_file import read_config
from slime.arguments.errors import ConfigError, Problem
from slime.arguments.raw import RawArguments, apply_entries

ROLES = ("actor", "critic", "ref")


def parse_megatron_role_args(base_args: Namespace, megatron_config_path: str, role: str) -> Namespace:
    """A copy of the arguments with the section of `role` laid over them.

    The file is a mapping of roles; each holds options by name. A role it does not name keeps the arguments.

    Raises:
        ConfigError: The file cannot be read, names an unknown role or option, or a value has the wrong type.
    """
    if role not in ROLES:
        raise ConfigError([Problem("role", role, "no such role", "one of " + ", ".join(ROLES))])
    entries, problems = read_config(Path(megatron_config_path), megatron_config_path, frozenset(ROLES), os.environ)
    for entry in entries:
        if entry.group is None:
            message = "options stand below a role"
            problems.append(Problem(f"{entry.where} {entry.key}", None, message, "roles: " + ", ".join(ROLES)))
    raw = RawArguments(deepcopy(vars(base_args)))
    mine = [entry for entry in entries if entry.group == role]
    problems += apply_entries(raw, mine, {})
    if problems:
        raise ConfigError(problems)
    return Namespace(**raw.values)
