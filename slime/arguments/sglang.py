"""The published check of the engines' options, for arguments that were not made by `parse_args`."""

from argparse import Namespace

from slime.arguments.errors import ConfigError
from slime.arguments.passthrough import TARGETS, check


def validate_args(args: Namespace) -> None:
    """Check every option that passes through to SGLang and the router.

    Raises:
        ConfigError: An option that the installed program does not have, or that slime sets itself.
    """
    found = [
        check(target, option, value, target.dest)
        for target in TARGETS
        for option, value in getattr(args, target.dest).items()
    ]
    problems = [problem for problem in found if problem is not None]
    if problems:
        raise ConfigError(problems)
