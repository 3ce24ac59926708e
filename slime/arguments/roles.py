"""Settings per role: the actor, the critic and the reference may differ in Megatron options."""

import os
from argparse import Namespace
from copy import deepcopy
from pathlib import Path

from slime.arguments.config_file import read_config
from slime.arguments.errors import ConfigError, Problem
from slime.arguments.facts import absolute_path, unbuilt_label
from slime.arguments.raw import RawArguments, apply_entries
from slime.arguments.registry import all_flags

ROLES = ("actor", "critic", "ref")


def parse_megatron_role_args(
    base_args: Namespace, megatron_config_path: str, role: str
) -> Namespace:
    """A copy of the arguments with the section of `role` laid over them.

    The file is a mapping of roles; each holds options by name. A role it does not name keeps the
    arguments.

    Raises:
        ConfigError: The file cannot be read, names an unknown role or option, or a value has
            the wrong type.
    """
    if role not in ROLES:
        raise ConfigError([Problem("role", role, "no such role", "one of " + ", ".join(ROLES))])
    entries, problems = read_config(
        Path(megatron_config_path), megatron_config_path, frozenset(ROLES), os.environ
    )
    for entry in entries:
        if entry.group is None:
            message = "options stand below a role"
            problems.append(
                Problem(f"{entry.where} {entry.key}", None, message, "roles: " + ", ".join(ROLES))
            )
    raw = RawArguments(deepcopy(vars(base_args)))
    mine = [entry for entry in entries if entry.group == role]
    problems += apply_entries(raw, mine, {})
    for flag in all_flags():
        if flag.path and raw.given(flag.dest) and isinstance(raw.values[flag.dest], str):
            path = absolute_path(raw.values[flag.dest], os.environ)
            if path is None:
                problems.append(unbuilt_label(flag.name, raw.values[flag.dest]))
            raw.values[flag.dest] = path
    if problems:
        raise ConfigError(problems)
    return Namespace(**raw.values)


def check_roles(args: Namespace) -> list[Problem]:
    """Every mistake in the file of `--megatron-config-path`."""
    problems: list[Problem] = []
    for role in ROLES if args.megatron_config_path is not None else ():
        try:
            parse_megatron_role_args(args, args.megatron_config_path, role)
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    return problems
