"""Each rule of the lint finds its fault, and says nothing about a clean tree."""

import subprocess
from pathlib import Path

import pytest

from tools.lint import lint

BUILD = '''"""A room."""

load("//x:y.bzl", "slime_library", "slime_test")

NAMES = ["test_a"]

slime_library(name = "room", srcs = glob(["*.py"], exclude = ["test_*.py"]), deps = [":x"])
[slime_test(name = name, srcs = [name + ".py"]) for name in NAMES]
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A clean repository with one room and one test."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for folder in ("slime/room", "tests/room"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "BUILD.bazel").write_text(BUILD)
    (tmp_path / "slime/room/code.py").write_text('"""Code."""\n')
    (tmp_path / "tests/room/test_a.py").write_text('"""Tests."""\n')
    (tmp_path / ".gitignore").write_text("ignored*\n")
    return tmp_path


def test_clean_tree(tree: Path):
    (tree / "ignored.py").write_text("import os\n")
    assert lint(tree) == []


@pytest.mark.parametrize(
    ("path", "text", "finding"),
    [
        ("tests/room/test_b.py", '"""B."""\n', "belongs to no test target"),
        ("slime/loose.py", '"""Loose."""\n', "belongs to 0 targets, not to one"),
        ("slime/other/BUILD.bazel", "x = 1\n", "no docstring saying what this is"),
        ("slime/room/long.py", '"""L."""\n' + "x = 1\n" * 500, "501 lines, more than 500"),
        ("notes.md", "see https://pypi" + ".org/x\n", ":1: names a registry: pypi" + ".org"),
        ("notes.md", "\nin /ro" + "ot/.cache\n", ":2: names a folder of one machine: /ro" + "ot/"),
        ("slime/room/ugly.py", '"""U."""\n\nimport os\n', "`os` imported but unused"),
    ],
)
def test_finds(tree: Path, path, text, finding):
    (tree / path).parent.mkdir(exist_ok=True)
    (tree / path).write_text(text)
    found = [line for line in lint(tree) if finding in line]
    assert len(found) == 1 and found[0].startswith(path)


def test_finds_wrong_types_in_pure_rooms_alone(tree: Path):
    wrong = '"""Wrong."""\n\nnumber: int = "text"\n'
    for room, purity in (("first", "pure"), ("second", "torch")):
        folder = tree / "slime" / room
        folder.mkdir()
        (folder / "code.py").write_text(wrong)
        text = f'"""R."""\nslime_library(name = "r", srcs = ["code.py"], purity = "{purity}")\n'
        (folder / "BUILD.bazel").write_text(text)
    (finding,) = lint(tree)
    assert finding.startswith("slime/first/code.py:3: error: Incompatible types")


def test_finds_a_module_in_two_targets(tree: Path):
    with (tree / "slime/room/BUILD.bazel").open("a") as build:
        build.write('slime_library(name = "again", srcs = ["code.py"])\n')
    assert lint(tree) == ["slime/room/code.py: belongs to 2 targets, not to one"]
