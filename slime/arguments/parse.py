"""`parse_args`: the whole way from the command line to the arguments of the run."""

import sys
from argparse import Namespace
from collections.abc import Sequence

from slime.arguments.errors import ConfigError
from slime.arguments.facts import gather_facts
from slime.arguments.parser import AddCustomArguments
from slime.arguments.raw import read_raw
from slime.arguments.resolve import resolve


def parse_args(
    add_custom_arguments: AddCustomArguments | None = None, argv: Sequence[str] | None = None
) -> Namespace:
    """Read, check and resolve all options.

    Args:
        add_custom_arguments: Gets the argparse parser and adds the caller's own flags to it.
        argv: The command line without the program's name; None takes that of the process.

    Raises:
        ConfigError: With every problem that was found.
    """
    raw, problems = read_raw(sys.argv[1:] if argv is None else argv, add_custom_arguments)
    facts, found = gather_facts(raw)
    problems += found
    args = resolve(raw, facts)
    if problems:
        raise ConfigError(problems)
    return args
