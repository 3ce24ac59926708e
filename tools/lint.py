"""Check what no single test sees: the whole source tree.

    ./bazelw run //tools:lint                     # every check
    ./bazelw run //tools:lint -- ruff shellcheck  # some

- every test file and every module belongs to exactly one target, so nothing is silently unbuilt;
- every BUILD file begins with a docstring saying what the room is and who may depend on it;
- no module is longer than MAX_LINES;
- no duration and no deadline of slime comes from the wall clock, which may be set in mid-run;
- no file names a package registry's host or a folder of one particular machine;
- the tools of lint_tools are content: ruff, mypy, shellcheck, yamllint, actionlint, Nix.

BUILD files are Python by syntax: they are run with every rule replaced by a recorder (build_files).
"""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.build_files import Target, targets_of
from tools.lint_tools import TOOLS, Check

MAX_LINES = 500
CODE_FOLDERS = ("benchmarks", "ci", "examples", "nix", "slime", "third_party/pypi", "tools")
FORBIDDEN = {
    r"pypi\.org|files\.pythonhosted\.org|download\.pytorch\.org|registry\.npmjs\.org": "registry",
    r"(?<![\w.])/(?:root|work|home/\w+|Users/\w+)/": "folder of one machine",
}
WALL_CLOCKS = ("time", "time.time", "time.time_ns", "datetime.now", "datetime.datetime.now")
CLOCK_OFFSET = "time.time() - time.monotonic()"
COMPUTES_OR_KEEPS = (
    ast.BinOp, ast.AugAssign, ast.Compare, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Return,
)  # fmt: skip


def source_files(root: Path) -> list[Path]:
    """List the files that are, or are about to be, under version control, relative to `root`."""
    git = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run(
        [*git, "--exclude-standard"], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    return sorted(Path(name) for name in set(listed.split("\0")) if (root / name).is_file())


def check_targets(root: Path, files: list[Path]) -> Iterator[str]:
    """Every module is in exactly one target; a test file's target is a test."""
    build_files = [file for file in files if file.name == "BUILD.bazel"]
    targets = [target for file in build_files for target in targets_of(root, file.parent)]
    owners = Counter(source for target in targets for source in set(target.sources))
    tested = {source for target in targets if is_test(target) for source in target.sources}
    for file in (file for file in files if file.suffix == ".py"):
        if file.parts[0] == "tests" and file.name.startswith("test_"):
            if file not in tested:
                yield f"{file}: belongs to no test target"
        elif str(file).startswith(tuple(f"{folder}/" for folder in CODE_FOLDERS)):
            if owners[file] != 1:
                yield f"{file}: belongs to {owners[file]} targets, not to one"


def is_test(target: Target) -> bool:
    """Whether `bazel test` runs a target."""
    return target.rule.endswith("_test")


def check_docstrings(root: Path, files: list[Path]) -> Iterator[str]:
    """BUILD files begin by saying what the room is."""
    for file in files:
        if file.name == "BUILD.bazel" and "third_party/rules_" not in str(file):
            if not (root / file).read_text().startswith('"""'):
                yield f"{file}: no docstring saying what this is and who may depend on it"


def check_length(root: Path, files: list[Path]) -> Iterator[str]:
    """No module is too long to be read from top to bottom."""
    for file in files:
        if file.suffix in (".py", ".bzl") and file.name != "lock.bzl":
            length = len((root / file).read_text().splitlines())
            if length > MAX_LINES:
                yield f"{file}: {length} lines, more than {MAX_LINES}"


def check_clock(root: Path, files: list[Path]) -> Iterator[str]:
    """The wall clock is only read to be written down: whoever keeps it may compute with it.

    But for its difference to the monotonic one, which tells whether somebody set it.
    """
    for file in (file for file in files if file.parts[0] == "slime" and file.suffix == ".py"):
        for node in ast.walk(ast.parse((root / file).read_text())):
            if not isinstance(node, COMPUTES_OR_KEEPS) or ast.unparse(node) == CLOCK_OFFSET:
                continue
            for call in ast.iter_child_nodes(node):
                if isinstance(call, ast.Call) and ast.unparse(call.func) in WALL_CLOCKS:
                    yield f"{file}:{call.lineno}: keeps the wall clock; time.monotonic is never set"


def check_text(root: Path, files: list[Path]) -> Iterator[str]:
    """Nothing names a registry's host, or a folder that only one machine has."""
    for file in files:
        try:
            lines = (root / file).read_text().splitlines()
        except UnicodeDecodeError:
            continue  # pictures
        for number, line in enumerate(lines, 1):
            for pattern, what in FORBIDDEN.items():
                if found := re.search(pattern, line):
                    yield f"{file}:{number}: names a {what}: {found[0]}"


CHECKS: dict[str, Check] = {
    "targets": check_targets,
    "docstrings": check_docstrings,
    "length": check_length,
    "text": check_text,
    "clock": check_clock,
    **TOOLS,
}


def lint(root: Path, checks: list[str]) -> list[str]:
    """Return the findings of some checks, one line each."""
    files = source_files(root)
    return [finding for name in checks for finding in CHECKS[name](root, files)]


def main(argv: list[str]) -> int:
    """Lint the workspace that this runs in."""
    if unknown := set(argv) - set(CHECKS):
        print(f"lint: no check {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
        return 2
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", Path.cwd()))
    found = lint(root, argv or list(CHECKS))
    print("\n".join([*found, f"lint: {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
