"""The build graph as content digests: what Bazel's XML says of a target, and what its files hold.

A node's own digest covers what it is without its inputs, so that two graphs can be compared node by
node and a difference traced to where it began. Nothing in it depends on the workspace's folder.
"""

import ast
import hashlib
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Bazel's own and the host's: the same on both sides of a comparison, since one Bazel makes both.
BUILT_IN = ("bazel_tools", "local_config_", "platforms")
# Where a rule stands and what it asks for as inputs: the first means nothing, the rest is `inputs`.
NOT_OWN = ("rule-input", "rule-output")
NOT_OWN_NAMES = ("generator_location",)


class UndecidedError(Exception):
    """The graph does not tell what is affected; the message says why. Everything must run."""


@dataclass(frozen=True)
class Node:
    """A rule, a file or a package group."""

    own: str
    inputs: tuple[str, ...] = ()
    is_test: bool = False
    tags: tuple[str, ...] = ()
    is_file: bool = False
    missing: bool = False  # a source file that is named but not there


@dataclass(frozen=True)
class Graph:
    """`seed` has what every target depends on, by name; `nodes` are keyed by label."""

    seed: dict[str, str]
    nodes: dict[str, Node]

    def to_json(self) -> dict[str, Any]:
        """Return the form that `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Graph":
        """Read what `to_json` returned, by way of a file."""
        nodes = {
            label: Node(**{**node, "inputs": tuple(node["inputs"]), "tags": tuple(node["tags"])})
            for label, node in value["nodes"].items()
        }
        return cls(value["seed"], nodes)


def parse_graph(xml: str, seed: dict[str, str], locate: Callable[[str], Path]) -> Graph:
    """Read `bazel query --output=xml`; `locate` says where the file of a label lies.

    Raises UndecidedError for XML that does not parse.
    """
    try:
        # Bazel declares 1.1, which expat does not read, and uses nothing of it.
        root = ElementTree.fromstring(xml.replace('version="1.1"', 'version="1.0"', 1))
    except ElementTree.ParseError as error:
        raise UndecidedError(f"Bazel's answer cannot be read: {error}") from error
    return Graph(seed, {element.get("name", ""): _node(element, locate) for element in root})


def _node(element: ElementTree.Element, locate: Callable[[str], Path]) -> Node:
    label = element.get("name", "")
    if is_built_in(label):
        return Node(digest(label))
    if element.tag == "source-file":
        path = locate(label)
        return Node(file_digest(path), is_file=True, missing=not path.exists())
    if element.tag == "generated-file":
        return Node(digest(label), (element.get("generating-rule", ""),))
    rule = element.get("class", element.tag)
    parts = [rule, *map(_canonical, (child for child in element if _is_own(child)))]
    build_file = Path(element.get("location", "").rsplit(":", 2)[0])
    if build_file.is_file() and "select(" in (text := read_text(build_file)):
        # XML lists the values of all branches but not their conditions.
        parts.append(starlark_digest(text))
    return Node(
        own=digest("\0".join(parts)),
        inputs=tuple(sorted({child.get("name", "") for child in element.findall("rule-input")})),
        is_test=rule.endswith("_test") and label.lstrip("@").startswith("//"),
        tags=tuple(value.get("value", "") for value in element.findall("list[@name='tags']/*")),
    )


def _is_own(child: ElementTree.Element) -> bool:
    return child.tag not in NOT_OWN and child.get("name") not in NOT_OWN_NAMES


def _canonical(element: ElementTree.Element) -> str:
    inner = "".join(map(_canonical, element))
    return f"<{element.tag} {sorted(element.attrib.items())!r}>{inner}</>"


def is_built_in(label: str) -> bool:
    """Whether a label is in a repository that comes with Bazel or describes the host."""
    return label.startswith("@") and label.lstrip("@").startswith(BUILT_IN)


def digest(data: str | bytes) -> str:
    """Return the SHA-256 as hex."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def read_text(path: Path) -> str:
    """Read a file that should be UTF-8, whatever it is."""
    return path.read_text(encoding="utf-8", errors="backslashreplace")


def file_digest(path: Path) -> str:
    """Digest what Bazel would read there: through links, with the executable bit; folders too."""
    if path.is_file():
        executable = "x" if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else "-"
        return digest(executable.encode() + path.read_bytes())
    if path.is_dir():
        entries = sorted(path.iterdir())
        return digest("\0".join(f"{entry.name}\0{file_digest(entry)}" for entry in entries))
    return digest("missing")


def starlark_digest(text: str) -> str:
    """Digest Starlark without its comments, docstrings and layout; unreadable text as it is."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return digest(text)
    for scope in ast.walk(tree):
        if isinstance(scope, ast.Module | ast.FunctionDef):
            scope.body = [statement for statement in scope.body if not _is_text(statement)]
    return digest(ast.dump(tree))


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def seed_digests(root: Path, files: Iterable[str]) -> dict[str, str]:
    """Digest files that all targets depend on; comments do not count, and absent files do."""
    return {name: _seed_digest(root / name) for name in sorted(files)}


def _seed_digest(path: Path) -> str:
    if not path.is_file():
        return "absent"
    text = read_text(path)
    if path.suffix == ".bzl" or path.name.startswith(("WORKSPACE", "MODULE.bazel")):
        return starlark_digest(text) if not path.name.endswith(".lock") else digest(text)
    lines = (line.strip() for line in text.splitlines())
    return digest("\n".join(line for line in lines if line and not line.startswith("#")))
