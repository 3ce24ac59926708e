"""What one option is: its name, type, default and help. Command line and YAML share this
description.
"""

import ast
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TRUE_WORDS = ("true", "yes", "on", "1")
_EXPONENT = re.compile(r"\d+(\.\d*)?[eE]\+?\d+")
FALSE_WORDS = ("false", "no", "off", "0")


def json_value(text: str) -> Any:
    """The type of options that hold JSON."""
    return json.loads(text)


def layer_pattern(text: str) -> int | list[int]:
    """The type of options that choose layers: every N-th, or a 0/1 list such as `[0]*1+[1]*27`."""
    pattern: int | list[int] = _pattern_of(ast.parse(text, mode="eval").body)
    return pattern


def _pattern_of(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.List):
        return [_pattern_of(item) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        left, right = _pattern_of(node.left), _pattern_of(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        if (
            isinstance(node.op, ast.Mult)
            and isinstance(left, list)
            and isinstance(right, int)
            and right <= 1000
        ):
            return left * right
    raise ValueError("neither a number nor a list expression")


@dataclass(frozen=True)
class Flag:
    """One option.

    Attributes:
        name: As on the command line, with its dashes.
        kind: `int`, `float`, `str`, `bool`, `json_value` or `layer_pattern`.
        default: The published default.
        help: One sentence.
        choices: The allowed values; empty allows all.
        nargs: None for one value, "+" or "*" for a list, "append" for a repeatable flag.
        target: The attribute in the arguments, where it is not the name with underscores.
        negates: The flag switches its attribute off (`--disable-...`).
        path: The value is a path (or a list of paths): made absolute, may be a Bazel label
            `//pkg:name`.
    """

    name: str
    kind: Callable[..., Any]
    default: Any = None
    help: str = ""
    choices: tuple[str, ...] = ()
    nargs: str | None = None
    target: str | None = None
    negates: bool = False
    path: bool = False

    @property
    def key(self) -> str:
        """The flag's own name with underscores: the YAML key that matches the flag."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def dest(self) -> str:
        """The attribute of the resolved arguments."""
        return self.target or self.key


@dataclass(frozen=True)
class FlagGroup:
    """The options of one topic: a section of `--help` and a mapping in YAML."""

    name: str
    title: str
    flags: tuple[Flag, ...]


def switch(name: str, help: str) -> Flag:
    """A flag that is off unless given."""
    return Flag(name, bool, False, help)


def toggle(name: str, help: str) -> Flag:
    """A flag with a `--no-` form; None (decided by other options) when neither is given."""
    return Flag(name, bool, None, help)


def negative(name: str, target: str, help: str) -> Flag:
    """A flag that switches `target`, which is on by default, off."""
    return Flag(name, bool, True, help, target=target, negates=True)


class WrongValueError(ValueError):
    """A value does not fit its flag; the text says what was expected."""


def convert_text(flag: Flag, words: Sequence[str]) -> Any:
    """The value of command-line words. Raises WrongValueError."""
    if flag.nargs is not None:
        return [_check_choice(flag, _scalar_from_text(flag, word)) for word in words]
    return _check_choice(flag, _scalar_from_text(flag, words[0]))


def convert_yaml(flag: Flag, value: Any) -> Any:
    """The value of a YAML node that is already a Python object. Raises WrongValueError."""
    if value is None:
        return None
    if flag.nargs is not None:
        items = value if isinstance(value, list) else [value]
        return [_check_choice(flag, _scalar_from_yaml(flag, item)) for item in items]
    return _check_choice(flag, _scalar_from_yaml(flag, value))


def expected(flag: Flag) -> str:
    """What a value of this flag must be, in words."""
    names = {
        int: "an integer",
        float: "a number",
        str: "a text",
        bool: "true or false",
        layer_pattern: "a number or a 0/1 list",
    }
    one = names.get(flag.kind, "JSON") if not flag.choices else "one of " + ", ".join(flag.choices)
    return one if flag.nargs is None else f"a list, each item {one}"


def _check_choice(flag: Flag, value: Any) -> Any:
    if flag.choices and value not in flag.choices:
        raise WrongValueError(f"expected {expected(flag)}")
    return value


def _scalar_from_text(flag: Flag, text: str) -> Any:
    if flag.kind is bool:
        word = text.lower()
        if word not in TRUE_WORDS + FALSE_WORDS:
            raise WrongValueError(f"expected {expected(flag)}")
        return word in TRUE_WORDS
    try:
        return flag.kind(text)
    except (ValueError, SyntaxError) as error:
        raise WrongValueError(f"expected {expected(flag)}") from error


def _count(value: Any) -> Any:
    """1.0e6 meant as a whole number; YAML 1.1 reads it as a text, 1.0e+6 as a float."""
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _scalar_from_yaml(flag: Flag, value: Any) -> Any:
    if flag.kind is json_value:
        return _scalar_from_text(flag, value) if isinstance(value, str) else value
    if flag.kind is layer_pattern:
        return _scalar_from_text(flag, str(value))
    if flag.kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if flag.kind is float and isinstance(value, str):  # YAML 1.1 reads 1e-4 as a text
        return _scalar_from_text(flag, value)
    if flag.kind is int:
        value = _count(value)
    if type(value) is not flag.kind:
        raise WrongValueError(f"expected {expected(flag)}")
    return value
