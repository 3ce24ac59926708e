"""Run one target's test files under pytest, keeping Bazel's test contract.

Contract: https://bazel.build/reference/test-encyclopedia - shards, `--test_filter`,
`--test_runner_fail_fast`, junit XML.
"""

import os
import sys
from pathlib import Path
from typing import Any

from tools.bazel.bootstrap import activate


class Shard:
    """A pytest plug-in that keeps every n-th collected test when Bazel asks for shards."""

    def __init__(self, total: int, index: int) -> None:
        self.total, self.index = total, index

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Drop the other shards' tests."""
        kept = items[self.index :: self.total]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def shard_of(env: os._Environ[str]) -> Shard | None:
    """Read this process's share; touching the file tells Bazel that shards work."""
    if not env.get("TEST_TOTAL_SHARDS"):
        return None
    if env.get("TEST_SHARD_STATUS_FILE"):
        Path(env["TEST_SHARD_STATUS_FILE"]).touch()
    return Shard(int(env["TEST_TOTAL_SHARDS"]), int(env["TEST_SHARD_INDEX"]))


def pytest_arguments(workspace: Path, argv: list[str], env: os._Environ[str]) -> list[str]:
    """Translate Bazel's environment to pytest's options; `--file=` names the test files."""
    files = [str(workspace / argument[7:]) for argument in argv if argument.startswith("--file=")]
    others = [argument for argument in argv if not argument.startswith("--file=")]
    options = [
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        f"--rootdir={workspace}",
        f"--confcutdir={workspace}",
    ]
    options += ["--import-mode=importlib", "--durations=5", "--durations-min=1"]
    if timeout := env.get(
        "TEST_TIMEOUT"
    ):  # every thread's stack, shortly before Bazel ends a test that hangs
        options += ["-o", f"faulthandler_timeout={0.9 * float(timeout):.0f}"]
    if report := env.get("XML_OUTPUT_FILE"):
        options += [f"--junitxml={report}", "-o", "junit_family=xunit1"]
    if folder := env.get("TEST_TMPDIR"):
        options.append(f"--basetemp={folder}/pytest")
    if env.get("TESTBRIDGE_TEST_RUNNER_FAIL_FAST") == "1":
        options.append("-x")
    chosen = env.get("TESTBRIDGE_TEST_ONLY")
    if chosen and "::" in chosen:  # a node id: tests/room/test_x.py::test_y, or test_x.py::test_y
        name, _, rest = chosen.partition("::")
        files = [f"{file}::{rest}" for file in files if file.endswith(name)]
    elif chosen:
        options += ["-k", chosen]
    return options + others + files


def main() -> int:
    """Exit as pytest does, except that a shard or a filter may select nothing here."""
    env = os.environ
    workspace = activate(env["TEST_WORKSPACE"])
    if folder := env.get("TEST_TMPDIR"):
        env["HOME"] = folder
        env["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{folder}/hypothesis"
    arguments = pytest_arguments(workspace, sys.argv[1:], env)
    shard = shard_of(env)
    # A test and its conftest may import the modules beside them.
    files = [argument[7:] for argument in sys.argv[1:] if argument.startswith("--file=")]
    sys.path[1:1] = sorted({str((workspace / file).parent) for file in files})
    import pytest  # only now is it on the path

    code = pytest.main(arguments, plugins=[shard] if shard else [])
    if code == pytest.ExitCode.NO_TESTS_COLLECTED and (shard or env.get("TESTBRIDGE_TEST_ONLY")):
        return 0
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
