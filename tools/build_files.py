"""Read BUILD files without Bazel.

Their syntax is Python's, so one is run with every rule and macro replaced by a recorder. Enough for
the files of this repository: literal and computed attributes, `glob`, comprehensions.
"""

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Target:
    """One call of a rule or macro in a BUILD file."""

    package: Path
    rule: str
    attributes: dict[str, Any]

    @property
    def sources(self) -> list[Path]:
        """Its `srcs` in its own package, relative to the workspace."""
        names = (str(name).removeprefix(":") for name in self.attributes.get("srcs", []))
        return [self.package / name for name in names if "//" not in name]


class _Recorder(dict):
    """Names for a BUILD file to use: each that is not set otherwise is a rule to be recorded."""

    def __init__(self, package: Path, fixed: dict[str, Any]) -> None:
        super().__init__(fixed)
        self.package = package
        self.targets: list[Target] = []

    def __missing__(self, rule: str) -> Callable[..., None]:
        if hasattr(builtins, rule):  # list, sorted, str, ... mean what they mean in Starlark
            raise KeyError(rule)
        return lambda *_, **attributes: self.targets.append(Target(self.package, rule, attributes))


def targets_of(root: Path, package: Path) -> list[Target]:
    """Record the targets that `package`/BUILD.bazel declares, in order."""
    folder = root / package

    def glob(include: list[str], exclude: list[str] | None = None, **_: Any) -> list[str]:
        subpackages = [path.parent for path in folder.rglob("BUILD.bazel") if path.parent != folder]
        found = {path for pattern in include for path in folder.glob(pattern) if path.is_file()}
        found -= {path for pattern in exclude or [] for path in folder.glob(pattern)}
        mine = (path for path in found if not any(path.is_relative_to(sub) for sub in subpackages))
        return sorted(str(path.relative_to(folder)) for path in mine)

    names = _Recorder(package, {"glob": glob, "True": True, "False": False, "None": None})
    code = compile((folder / "BUILD.bazel").read_text(), str(package / "BUILD.bazel"), "exec")
    # `load` is recorded like a rule; what it would bring is recorded when called. Constants from
    # .bzl files are therefore not known here: BUILD files keep theirs to themselves.
    exec(code, names)
    return [target for target in names.targets if target.rule not in ("load", "package")]
