"""The whole source tree is clean (tools/lint.py), and the list of pure rooms is complete."""

import ast
import os
from pathlib import Path

from tools.build_files import targets_of
from tools.lint import lint

# Runfiles are links into the source tree.
ROOT = Path(os.environ["SLIME_RUNFILES"], "pyproject.toml").resolve().parent


def test_lint():
    findings = lint(ROOT)
    assert not findings, "\n".join(["", *findings])


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
