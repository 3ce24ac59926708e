"""Run git and Bazel for affected.py: a command that fails leaves the question undecided."""

import os
import subprocess
from pathlib import Path

from ci.affected_graph import UndecidedError

LIMIT_SECONDS = 1800


def run(command: list[str], folder: Path) -> str:
    """Return what a command prints. Raises UndecidedError, with its last words, if it fails."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UndecidedError(f"`{' '.join(command)}` in {folder}: {error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        errors = [line for line in lines if "ERROR" in line or "fatal" in line] or lines[-1:]
        raise UndecidedError(f"`{' '.join(command)}` failed: {errors[0]}")
    return done.stdout


def listed(root: Path, *options: str) -> list[str]:
    """List existing files by `git ls-files`, relative to `root`."""
    names = run(["git", "ls-files", "-z", *options], root).split("\0")
    return sorted({name for name in names if name and (root / name).is_file()})


def sources(root: Path, *patterns: str) -> list[str]:
    """List files that are, or are about to be, under version control."""
    return listed(root, "--cached", "--others", "--exclude-standard", "--", *patterns)


def commit_of(root: Path, revision: str) -> str:
    """Return the full id of a revision. Raises UndecidedError if this clone does not have it."""
    command = ["git", "rev-parse", "--quiet", "--verify", "--end-of-options"]
    try:
        return run([*command, revision + "^{commit}"], root).strip()
    except UndecidedError as error:
        raise UndecidedError(f"this clone does not have the revision {revision}") from error
