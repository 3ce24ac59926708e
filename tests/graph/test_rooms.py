"""Lists of rooms, checks and packages are complete: those of this BUILD file and of pip."""

import ast
import os
import re
import sys
import tomllib
from itertools import chain
from pathlib import Path

from tools.build_files import targets_of
from tools.lint import CHECKS

# Runfiles are links into the source tree.
ROOT = Path(os.environ["SLIME_RUNFILES"], "pyproject.toml").resolve().parent


def test_every_pure_room_is_under_test():
    rooms = (path.parent.relative_to(ROOT) for path in ROOT.glob("slime/*/BUILD.bazel"))
    declared = {
        room.name
        for room in rooms
        if any(target.attributes.get("purity") == "pure" for target in targets_of(ROOT, room))
    }
    assert declared == pure_rooms()


def pure_rooms() -> set[str]:
    """The list in this package's BUILD file."""
    tree = ast.parse((ROOT / "tests/graph/BUILD.bazel").read_text())
    names = (node for node in tree.body if isinstance(node, ast.Assign))
    return next(set(ast.literal_eval(n.value)) for n in names if n.targets[0].id == "PURE_ROOMS")


def test_every_check_of_the_lint_is_in_one_target() -> None:
    environments = [t.attributes.get("env", {}) for t in targets_of(ROOT, Path("tests/graph"))]
    assert sorted(" ".join(e.get("SLIME_LINT", "") for e in environments).split()) == sorted(CHECKS)
    suites = {t.attributes["name"] for t in targets_of(ROOT, Path("ci/lint"))}
    tested = {t.attributes["name"] for t in targets_of(ROOT, Path("tests/graph"))}
    assert suites == {n.removeprefix("lint_") for n in tested if n.startswith("lint_")}


def test_pip_installs_what_slime_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    declared = {re.match(r"[\w-]+", line)[0].lower() for line in wanted}
    imported = set()
    for path in (ROOT / "slime").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    distribution = {"megatron": "megatron-core", "yaml": "pyyaml", "deep_ep": "sgl-deep-ep"}
    third_party = imported - sys.stdlib_module_names - {"slime"}
    named = {distribution.get(name, name).replace("_", "-") for name in third_party}
    assert named <= declared
