"""YAML configuration files: flat or nested by group, read with file and line, every mistake
collected.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from slime.arguments.errors import Problem

_MOST_NODES = 100_000
_ENVIRONMENT = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::([^}]*))?\}")


@dataclass(frozen=True)
class Entry:
    """One `key: value` of a file.

    Attributes:
        key: With underscores.
        value: As YAML reads it; the text itself where it was filled in from the environment.
        where: File and line.
        group: The group it stands in.
        interpolated: The value is a text, still to be read as the option's type.
    """

    key: str
    value: Any
    where: str
    group: str | None = None
    interpolated: bool = False


def read_config(
    path: Path, shown: str, groups: frozenset[str], environment: Mapping[str, str]
) -> tuple[list[Entry], list[Problem]]:
    """The entries of a file, in order, and what is wrong with its syntax.

    Args:
        path: The file.
        shown: Its name in messages.
        groups: Names of groups: a mapping under such a key holds options itself.
        environment: For `${env:NAME}` and `${env:NAME:default}`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return [], [
            Problem("--config", shown, f"cannot be read: {reason}", "give the path of a YAML file")
        ]
    try:
        loader = yaml.SafeLoader(text)  # which refuses control characters
    except yaml.YAMLError as error:
        return [], [_syntax_problem(error, shown)]
    try:
        root = loader.get_single_node()
        if root is None:
            return [], []
        if _MOST_NODES < _expanded(root, {}) < float("inf"):  # the reader names a cycle itself
            message = f"has more than {_MOST_NODES} values once its aliases are filled in"
            return [], [Problem("--config", shown, message, "write the values out")]
        return _Reader(loader, shown, groups, environment).read(root)
    except yaml.YAMLError as error:
        return [], [_syntax_problem(error, shown)]
    finally:
        loader.dispose()


def _expanded(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Nodes below this one with aliases filled in; infinite where an anchor holds itself."""
    if id(node) in sizes:
        return sizes[id(node)]
    sizes[id(node)] = float("inf")  # until it is known: whoever meets it now is inside it
    children: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        children = node.value
    elif isinstance(node, yaml.MappingNode):
        children = [part for pair in node.value for part in pair]
    sizes[id(node)] = 1 + sum(_expanded(child, sizes) for child in children)
    return sizes[id(node)]


def _syntax_problem(error: yaml.YAMLError, shown: str) -> Problem:
    mark = getattr(error, "problem_mark", None)
    where = f"{shown}:{mark.line + 1}" if mark else shown
    return Problem(where, None, f"not valid YAML: {getattr(error, 'problem', None) or error}")


class _Reader:
    def __init__(
        self,
        loader: yaml.SafeLoader,
        shown: str,
        groups: frozenset[str],
        environment: Mapping[str, str],
    ) -> None:
        self.loader = loader
        self.shown = shown
        self.groups = groups
        self.environment = environment
        self.problems: list[Problem] = []
        self.seen: set[int] = set()

    def read(self, root: yaml.Node) -> tuple[list[Entry], list[Problem]]:
        if not isinstance(root, yaml.MappingNode):
            where = self._where(root)
            return [], [
                Problem(where, None, "a configuration is a mapping", "write `option: value` lines")
            ]
        entries: list[Entry] = []
        for key, node in _items(root):
            if key in self.groups and isinstance(node, yaml.MappingNode):
                for inner, inner_node in _items(node):
                    self._add(entries, inner, inner_node, key)
            elif key in self.groups and node.tag == "tag:yaml.org,2002:null":
                continue  # a group with all its lines commented out
            else:
                self._add(entries, key, node, None)
        return entries, self.problems

    def _add(self, entries: list[Entry], key: str, node: yaml.Node, group: str | None) -> None:
        before = len(self.problems)
        written = node.value
        self._prepare(node)
        if len(self.problems) > before:
            return
        if isinstance(node, yaml.ScalarNode) and node.value != written:
            entries.append(Entry(key, node.value or None, self._where(node), group, True))
        else:
            value = self.loader.construct_object(node, deep=True)
            entries.append(Entry(key, value, self._where(node), group))

    def _prepare(self, node: yaml.Node) -> None:
        """Fill in the environment and find duplicate keys, in the value `node`."""
        if id(node) in self.seen:  # an alias of a node that was prepared, or of one around it
            return
        self.seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            self._interpolate(node)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._prepare(item)
        elif isinstance(node, yaml.MappingNode):
            seen: dict[str, str] = {}
            for key_node, value_node in node.value:
                key = str(key_node.value).replace("-", "_")
                where = self._where(key_node)
                if key in seen:
                    message = f"{key_node.value} is given twice, first at {seen[key]}"
                    self.problems.append(Problem(where, None, message, "keep one of the two"))
                seen.setdefault(key, where)
                self._prepare(value_node)

    def _interpolate(self, node: yaml.ScalarNode) -> None:
        if "${" not in node.value:
            return

        def fill(match: re.Match[str]) -> str:
            name, default = match.groups()
            value = self.environment.get(name, default)
            if value is None:
                self.problems.append(
                    Problem(
                        self._where(node),
                        match.group(0),
                        f"the environment variable {name} is not set",
                        f"set it, or give a default: ${{env:{name}:default}}",
                    )
                )
                return match.group(0)
            return value

        node.value = _ENVIRONMENT.sub(fill, node.value)
        if node.style is None:  # not quoted: "${env:BATCH:32}" is a number like 32 itself
            node.tag = self.loader.resolve(yaml.ScalarNode, node.value, (True, False))

    def _where(self, node: yaml.Node) -> str:
        return f"{self.shown}:{node.start_mark.line + 1}"


def _items(node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node]]:
    for key_node, value_node in node.value:
        yield str(key_node.value).lstrip("-").replace("-", "_"), value_node
