"""`parse_args`: the whole way from the command line to the arguments of the run."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from slime.arguments.check_data import scan_train_data
from slime.arguments.check_ranges import refuse_out_of_range
from slime.arguments.errors import ConfigError
from slime.arguments.facts import gather_facts
from slime.arguments.parser import AddCustomArguments
from slime.arguments.raw import located, read_raw
from slime.arguments.resolve import resolve
from slime.arguments.roles import parse_megatron_role_args
from slime.arguments.validate import validate

__all__ = ["parse_args", "parse_megatron_role_args"]


def parse_args(
    add_custom_arguments: AddCustomArguments | None = None, argv: Sequence[str] | None = None
) -> Namespace:
    """Read, resolve and check all options; no process is started and no torch imported.

    Args:
        add_custom_arguments: Gets the argparse parser and adds the caller's own flags to it.
        argv: The command line without the program's name; None takes that of the process.

    Raises:
        ConfigError: With every problem that was found.
    """
    raw, problems = read_raw(sys.argv[1:] if argv is None else argv, add_custom_arguments)
    problems += refuse_out_of_range(raw)
    facts, found = gather_facts(raw)
    train_data = scan_train_data(raw, facts)
    facts = replace(facts, num_prompts=train_data.count)
    args = resolve(raw, facts)
    problems += found
    # What could not be read keeps its default, which must not be judged a second time.
    checked = validate(args, raw, facts, train_data)
    problems += [located(problem, raw) for problem in checked if problem.option not in raw.failed]
    if problems:
        raise ConfigError(problems)
    return args
