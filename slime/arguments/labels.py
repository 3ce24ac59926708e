"""Bazel labels as paths: `//examples/quickstart:model` is the file or directory that this target
builds.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

_LABEL = re.compile(r"//(?=[\w:])(?P<package>[\w./+-]*)(?::(?P<name>[\w./+@=-]+))?$")


def is_label(value: str) -> bool:
    """Whether a path value is a label."""
    return _LABEL.fullmatch(value) is not None


def label_path(label: str, environment: Mapping[str, str]) -> Path | None:
    """Where the target's output lies: beside the running program (its runfiles), else in
    `bazel-bin`; None if not built.
    """
    match = _LABEL.fullmatch(label)
    if match is None:
        return None
    package = match["package"]
    relative = Path(package, match["name"] or Path(package).name)
    root = Path(os.path.abspath(__file__)).parents[
        2
    ]  # of the runfiles, or of a checkout; symlinks kept
    roots = [root]
    for base in (environment.get("BUILD_WORKSPACE_DIRECTORY"), root, os.getcwd()):
        if base:
            roots.append(Path(base, "bazel-bin"))
    return next((base / relative for base in roots if (base / relative).exists()), None)


def target_of(label: str) -> str:
    """The target to build: `//a:data/train.jsonl` lies in the directory that `//a:data` makes."""
    package, colon, name = label.partition("@[")[0].partition(":")
    return package + colon + name.split("/")[0]
