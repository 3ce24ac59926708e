"""What the documents say: commands, options, configurations, links, and who depends on whom."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from slime.arguments import parse_args
from slime.arguments.registry import all_flags
from tools.build_files import Target, targets_of

# Runfiles are links into the source tree, where the documents lie.
ROOT = Path(os.environ.get("SLIME_RUNFILES", "."), "pyproject.toml").resolve().parent
DOCUMENTS = [
    *("README.md", "CONTRIBUTING.md", "benchmarks/README.md"),
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/*.md"))),
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("examples/*/config*.yaml"))),
]
COMMAND = re.compile(
    r"^(?:#   |    )((?:\./bazelw|slime) (?:.*\\\n(?:#\s*|\s*))*.*)$", re.MULTILINE
)
CODE = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*(?![\w-])")
ARROW = re.compile(r"^    (\w+) -> ([\w ]+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@dataclass(frozen=True)
class Command:
    """A command as a document shows it, without its comment."""

    document: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}: {' '.join(self.words)}"

    @property
    def labels(self) -> list[str]:
        return [word for word in self.before_options if word.startswith("//")]

    @property
    def before_options(self) -> tuple[str, ...]:
        return self.words[: self.words.index("--")] if "--" in self.words else self.words

    @property
    def options(self) -> list[str]:
        """What the program itself gets."""
        return list(self.words[len(self.before_options) + 1 :])


def commands() -> list[Command]:
    found = []
    for document in DOCUMENTS:
        for match in COMMAND.finditer((ROOT / document).read_text()):
            text = re.sub(r"\\\n(?:#\s*|\s*)", "", match[1])
            found.append(Command(document, tuple(shlex.split(text, comments=True))))
    return found


def target(label: str) -> Target:
    """The target a label names. Raises StopIteration if there is none."""
    package, _, name = label.removeprefix("//").partition(":")
    wanted = name or Path(package).name
    targets = targets_of(ROOT, Path(package))
    return next(t for t in targets if t.attributes.get("name") == wanted)


def help_of(program: Target) -> str:
    command = [sys.executable, "-m", program.attributes["module"], "--help"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120, env=environment
    ).stdout


@pytest.mark.parametrize("command", commands(), ids=str)
def test_command(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if command.words[0] == "slime":  # with a configuration of the reader's own
        given = {word.partition("=")[0] for word in command.words if word.startswith("--")}
        assert given <= {flag.name for flag in all_flags()}
        return
    assert command.words[1] in ("build", "run", "test")
    for label in command.labels:
        if label.endswith("/..."):
            assert list((ROOT / label[2:-4]).rglob("BUILD.bazel"))
        else:
            target(label)
    if command.words[1] == "run":
        program = target(command.labels[0])
        if program.attributes["module"] in ("slime.train", "slime.train_async"):
            # Reads the configuration, finds model, data and hooks. Sources may be read-only here.
            parse_args(argv=[*command.options, f"--run-dir={tmp_path}"])
        elif command.options:
            options = [word.partition("=")[0] for word in command.options if word.startswith("--")]
            text = help_of(program)
            assert [option for option in options if option not in text] == []


def test_the_readme_begins_with_the_two_commands() -> None:
    first, second = [c for c in commands() if c.document == "README.md"][:2]
    assert first.words[1:3] == ("run", "//slime:train")
    assert second.words[1:] == ("test", "//tests/...", "--test_tag_filters=cpu")


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name.endswith(".md")])
def test_options_and_links_in_the_text_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    known = {flag.name for flag in all_flags()} | {"--help"}
    assert {option for code in CODE.findall(text) for option in OPTION.findall(code)} <= known
    here = (ROOT / document).parent
    assert [link for link in LINK.findall(text) if not (here / link).exists()] == []


def test_the_arrows_of_the_architecture_are_those_of_the_build() -> None:
    shown, built = {}, {}
    for room, names in ARROW.findall((ROOT / "docs/architecture.md").read_text()):
        shown[room] = set(names.split())
    for file in ROOT.glob("slime/*/BUILD.bazel"):
        labels = [
            label for t in targets_of(ROOT, file.parent) for label in t.attributes.get("deps", [])
        ]
        rooms = {re.split("[/:]", label)[3] for label in labels if label.startswith("//slime/")}
        if rooms - {file.parent.name}:
            built[file.parent.name] = rooms - {file.parent.name}
    assert shown == built
