"""What the user gave, before anything is derived from it: files, then the command line, with the
place of every value.
"""

import os
from argparse import Action, ArgumentTypeError
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from slime.arguments import parser as command_line
from slime.arguments import passthrough
from slime.arguments.config_file import Entry, read_config
from slime.arguments.errors import Problem, did_you_mean
from slime.arguments.flag import Flag, WrongValueError, convert_text, convert_yaml, expected
from slime.arguments.megatron_passthrough import MANAGED, megatron_flags, take_from_words
from slime.arguments.registry import GROUPS, all_flags, flags_by_key

COMMAND_LINE = "command line"
NOT_IN_FILES = ("config", "print_config", "dry_run")


@dataclass
class RawArguments:
    """Every option's given or default value.

    Attributes:
        values: Attribute -> value.
        origins: Attribute -> where it was given; defaults are absent. Of options that pass
            through, the key is `sglang_server_args.mem_fraction_static`.
        failed: Flags (`--lr`) whose given value could not be read.
    """

    values: dict[str, Any]
    origins: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def given(self, dest: str) -> bool:
        """Whether the user set this attribute."""
        return dest in self.origins

    def set(self, dest: str, value: Any, where: str) -> None:
        """Set an attribute, as given at `where`."""
        self.values[dest] = value
        self.origins[dest] = where

    def set_passed(self, target: passthrough.Target, option: str, value: Any, where: str) -> None:
        """Set an option that passes through."""
        self.values[target.dest][option] = value
        self.origins[f"{target.dest}.{option}"] = where


def read_raw(
    argv: Sequence[str],
    add_custom_arguments: command_line.AddCustomArguments | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[RawArguments, list[Problem]]:
    """Read files and command line. Returns the raw arguments and what was not understood."""
    environment = os.environ if environment is None else environment
    raw = RawArguments({flag.dest: deepcopy(flag.default) for flag in all_flags()})
    raw.values |= {target.dest: {} for target in passthrough.TARGETS}

    parser = command_line.build_parser()
    custom = command_line.add_custom(parser, add_custom_arguments)
    raw.values |= {action.dest: default for action, default in custom if action.dest != "help"}
    own = frozenset(parser._option_string_actions)  # argparse has no public way to list options
    words, passed = passthrough.take_from_command_line(argv, own)
    try:
        given, unknown = command_line.split(parser, words)
    except command_line.UsageError as error:
        return raw, [Problem(COMMAND_LINE, None, str(error), "see --help")]

    problems: list[Problem] = []
    custom_actions = {action.dest: action for action, _ in custom}
    for name in given.get("config", []):
        entries, syntax = read_config(
            user_path(name, environment), name, group_names(), environment
        )
        problems += syntax
        problems += apply_entries(raw, entries, custom_actions)
    problems += _apply_command_line(raw, given, custom_actions)
    for_megatron, unknown = take_from_words(unknown)
    for flag, texts in for_megatron:
        problems += _set_words(raw, flag, texts)
    problems += _unknown_words(unknown, own)
    for target, option, texts in passed:
        value = passthrough.convert(target, option, texts)
        raw.set_passed(target, option, value, COMMAND_LINE)
        problems += _as_list(passthrough.check(target, option, value, COMMAND_LINE))
    return raw, problems


def located(problem: Problem, raw: RawArguments) -> Problem:
    """The problem with the file and line that set its option, where a file did."""
    flag, _ = flags_by_key().get(
        problem.option.split(" ")[0].lstrip("-").replace("-", "_"), (None, False)
    )
    where = raw.origins.get(flag.dest, "") if flag is not None else ""
    return problem if where in ("", COMMAND_LINE) else replace(problem, where=where)


def group_names() -> frozenset[str]:
    """Names that hold options in a nested YAML file."""
    passed = {name for target in passthrough.TARGETS for name in (target.prefix, target.dest)}
    return frozenset(group.name for group in GROUPS) | passed | {"megatron"}


def user_path(path: str, environment: Mapping[str, str]) -> Path:
    """A path as the user meant it: `bazel run` starts programs in another directory than the
    user's.
    """
    base = environment.get("BUILD_WORKING_DIRECTORY") or os.getcwd()
    return Path(base, os.path.expanduser(path))


def apply_entries(
    raw: RawArguments, entries: Sequence[Entry], custom: Mapping[str, Action]
) -> list[Problem]:
    """Set the options of one file. The same option under two keys of one file is a mistake."""
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for entry in entries:
        options = _options_of(entry, custom)
        if options is None:
            problems.append(_unknown_key(entry, custom))
        for dest, value, setter in options or []:
            if dest in seen:
                message = f"{dest} is set twice in one file, first at {seen[dest]}"
                problems.append(Problem(entry.where, entry.key, message, "keep one of the two"))
                continue
            seen[dest] = entry.where
            problems += setter(raw, entry, dest, value)
    return problems


def _options_of(entry: Entry, custom: Mapping[str, Action]) -> list[tuple[str, Any, Any]] | None:
    """(attribute, value, setter) of an entry; None when there is no such option."""
    for target in passthrough.TARGETS:
        if entry.group in (target.prefix, target.dest):
            return [(f"{target.dest}.{entry.key}", entry.value, _set_passed)]
    if entry.key in flags_by_key():
        flag, _ = flags_by_key()[entry.key]
        return [(flag.dest, entry.value, _set_flag)]
    if entry.key not in custom and entry.key in megatron_flags():
        return [(entry.key, entry.value, _set_flag)]
    if entry.key in custom:
        return [(entry.key, entry.value, partial(_set_custom, custom[entry.key]))]
    found = passthrough.yaml_target(entry.key)
    if found is not None:
        return [(f"{found[0].dest}.{found[1]}", entry.value, _set_passed)]
    return None


def _set_flag(raw: RawArguments, entry: Entry, dest: str, value: Any) -> list[Problem]:
    flag, inverted = flags_by_key().get(entry.key) or (megatron_flags()[entry.key], False)
    if dest in NOT_IN_FILES:
        remedy = f"give {flag.name} on the command line"
        return [Problem(f"{entry.where} {entry.key}", value, "cannot stand in a file", remedy)]
    try:
        if entry.interpolated and value is not None:
            converted = convert_text(flag, [value])
        else:
            converted = convert_yaml(flag, value)
    except WrongValueError as error:
        raw.failed.add(flag.name)
        remedy = "put it in quotes" if flag.kind is str and isinstance(value, (bool, int)) else ""
        message = f"{error}, got {_kind(value)}"
        return [Problem(f"{entry.where} {entry.key}", value, message, remedy)]
    if converted is None and flag.default is not None:
        remedy = f"leave the line out for the default ({flag.default})"
        return [Problem(f"{entry.where} {entry.key}", "null", "needs a value", remedy)]
    raw.set(dest, (not converted) if inverted else converted, entry.where)
    return []


def _set_custom(
    action: Action, raw: RawArguments, entry: Entry, dest: str, value: Any
) -> list[Problem]:
    """An option of `add_custom_arguments`: texts are converted as argparse would."""
    try:
        converted = (
            action.type(value) if callable(action.type) and isinstance(value, str) else value
        )
    except (ValueError, TypeError, ArgumentTypeError) as error:
        return [Problem(f"{entry.where} {entry.key}", value, f"cannot be read: {error}")]
    if action.choices is not None and converted not in action.choices:
        message = "expected one of " + ", ".join(map(str, action.choices))
        return [Problem(f"{entry.where} {entry.key}", value, message)]
    raw.set(dest, converted, entry.where)
    return []


def _set_passed(raw: RawArguments, entry: Entry, dest: str, value: Any) -> list[Problem]:
    target_dest, option = dest.split(".", 1)
    target = next(target for target in passthrough.TARGETS if target.dest == target_dest)
    flag = f"--{target.prefix}-{option.replace('_', '-')}"
    own = next((f for f in all_flags() if f.name == flag), None)
    if own is not None:  # `sglang: {router_ip: ...}`: slime's own option of that name
        return _set_flag(raw, replace(entry, key=own.key), own.dest, value)
    if entry.interpolated and value is not None:
        value = passthrough.convert(target, option, [value])
    raw.set_passed(target, option, value, entry.where)
    return _as_list(passthrough.check(target, option, value, entry.where))


def _unknown_key(entry: Entry, custom: Mapping[str, Action]) -> Problem:
    known = [*flags_by_key(), *group_names(), *custom, *megatron_flags()]
    message = "no such option"
    if entry.key in MANAGED:
        return Problem(f"{entry.where} {entry.key}", entry.value, message, MANAGED[entry.key])
    if isinstance(entry.value, dict) and entry.group is None:
        message = "no such option or group"
    remedy = did_you_mean(entry.key, known) or "see --help for the options"
    return Problem(f"{entry.where} {entry.key}", entry.value, message, remedy)


def _apply_command_line(
    raw: RawArguments, given: Mapping[str, Any], custom: Mapping[str, Action]
) -> list[Problem]:
    problems: list[Problem] = []
    flags: dict[str, Flag] = {flag.dest: flag for flag in all_flags()}
    for dest, value in given.items():
        if dest in custom or flags[dest].kind is bool:
            raw.set(dest, value, COMMAND_LINE)
            continue
        problems += _set_words(raw, flags[dest], value if isinstance(value, list) else [value])
    return problems


def _set_words(raw: RawArguments, flag: Flag, words: Sequence[str]) -> list[Problem]:
    """Set an option to what stands on the command line."""
    try:
        if not words or (flag.nargs is None and len(words) > 1):
            raise WrongValueError(f"expected {expected(flag)}, got {len(words)} words")
        raw.set(flag.dest, convert_text(flag, words), COMMAND_LINE)
    except WrongValueError as error:
        raw.failed.add(flag.name)
        value = words if flag.nargs is not None or len(words) != 1 else words[0]
        return [Problem(flag.name, value, str(error))]
    return []


def _unknown_words(words: Sequence[str], known: frozenset[str]) -> list[Problem]:
    problems = []
    previous_unknown = False
    for word in words:
        if word.startswith("-"):
            name = word.partition("=")[0]
            key = name.lstrip("-").replace("-", "_")
            names = [*known, *(flag.name for flag in megatron_flags().values())]
            remedy = MANAGED.get(key) or did_you_mean(name, names) or "see --help for the options"
            problems.append(Problem(name, None, "no such option", remedy))
        elif not previous_unknown:
            message = "a value that belongs to no option"
            problems.append(Problem(COMMAND_LINE, word, message, "put its --option before it"))
        previous_unknown = previous_unknown or word.startswith("-")
    return problems


def _kind(value: Any) -> str:
    names = {
        bool: "true/false",
        int: "an integer",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "a mapping",
    }
    return names.get(type(value), type(value).__name__)


def _as_list(problem: Problem | None) -> list[Problem]:
    return [] if problem is None else [problem]
