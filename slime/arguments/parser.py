"""The command line: argparse splits it and prints `--help`; values are converted in `raw.py`, so
that all mistakes are found.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from slime.arguments.flag import Flag, FlagGroup
from slime.arguments.registry import GROUPS, all_flags

AddCustomArguments = Callable[[argparse.ArgumentParser], Any]

DESCRIPTION = """\
slime: RL post-training for LLMs. Options come from --config files (YAML, flat or nested by the
groups below) and from the command line, which wins. A switch --x is turned off again by --no-x.
Every other field of the installed Megatron's TransformerConfig and OptimizerConfig is an option
too: --moe-input-jitter-eps 0.01."""


class UsageError(Exception):
    """argparse cannot split the command line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def build_parser() -> argparse.ArgumentParser:
    """A parser of every flag that leaves values as text and sets nothing that was not given."""
    parser = _Parser(
        prog="slime",
        description=DESCRIPTION,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=44, width=120
        ),
        usage="slime --config FILE [--config FILE ...] [--option VALUE ...]",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    taken = {flag.name for flag in all_flags()}
    for group in GROUPS:
        _add_group(parser, group, taken)
    return parser


def add_custom(
    parser: argparse.ArgumentParser, add_custom_arguments: AddCustomArguments | None
) -> list[tuple[argparse.Action, Any]]:
    """Let the user's function add flags. Returns its actions, each with its default.

    The defaults are taken out of the parser, so that a flag on the command line can be told from a
    default.
    """
    if add_custom_arguments is None:
        return []
    before = len(parser._actions)  # argparse has no public way to list actions
    add_custom_arguments(parser)
    custom = []
    for action in parser._actions[before:]:
        default = None if action.default is argparse.SUPPRESS else action.default
        if isinstance(default, str) and callable(action.type):
            default = action.type(default)  # as argparse does with the default text
        custom.append((action, default))
        action.default = argparse.SUPPRESS
    return custom


def split(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What was given, as text by attribute, and the words no flag takes. Raises UsageError."""
    namespace, unknown = parser.parse_known_args(list(argv))
    return vars(namespace), unknown


def _add_group(parser: argparse.ArgumentParser, group: FlagGroup, taken: set[str]) -> None:
    section = parser.add_argument_group(group.title)
    for flag in group.flags:
        if flag.kind is bool:
            _add_switch(section, flag, taken)
            continue
        options: dict[str, Any] = {
            "dest": flag.dest,
            "help": _help(flag),
            "metavar": _metavar(flag),
        }
        if flag.nargs == "append":
            options["action"] = "append"
        elif flag.nargs is not None:
            options["nargs"] = flag.nargs
        section.add_argument(flag.name, **options)


def _add_switch(section: Any, flag: Flag, taken: set[str]) -> None:
    section.add_argument(
        flag.name, dest=flag.dest, action="store_const", const=not flag.negates, help=_help(flag)
    )
    opposite = (
        "--" + flag.dest.replace("_", "-") if flag.negates else "--no-" + flag.name.lstrip("-")
    )
    if opposite not in taken:
        shown = _help_opposite(flag)
        section.add_argument(
            opposite, dest=flag.dest, action="store_const", const=flag.negates, help=shown
        )


def _help_opposite(flag: Flag) -> str:
    return f"Not {flag.name}." if flag.default is None else argparse.SUPPRESS


def _help(flag: Flag) -> str:
    text = flag.help.replace("%", "%%")
    if flag.kind is bool or flag.default in (None, [], {}):
        return text
    return f"{text} [{flag.default}]"


def _metavar(flag: Flag) -> str:
    if flag.choices:
        return "{" + ",".join(flag.choices) + "}"
    if flag.path:
        return "PATH"
    return {int: "N", float: "X", str: "TEXT"}.get(flag.kind, "JSON")  # type: ignore[call-overload, no-any-return]
