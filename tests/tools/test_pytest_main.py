"""The test runner keeps Bazel's test contract: shards, filter, fail-fast, report, exit code."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

RUNNER = Path(os.environ["SLIME_RUNFILES"], "tools/bazel/pytest_main.py")
TESTS = """
import os, pytest
def test_one(): pass
def test_two(): pass
class TestGroup:
    def test_three(self): assert os.environ["HOME"] == os.environ["TEST_TMPDIR"]
"""


@pytest.fixture
def run(tmp_path: Path):
    """Run the runner on a test file with the given variables; returns (code, names run)."""

    def start(source: str = TESTS, **variables: str) -> tuple[int, list[str]]:
        file, report = tmp_path / "test_it.py", tmp_path / "report.xml"
        file.write_text(source)
        report.unlink(missing_ok=True)
        kept = {key: os.environ[key] for key in ("PATH", "TEST_WORKSPACE", "TEST_SRCDIR")}
        paths = {"TEST_TMPDIR": str(tmp_path / "tmp"), "XML_OUTPUT_FILE": str(report)}
        (tmp_path / "tmp").mkdir(exist_ok=True)
        env = {**kept, **paths, "PYTHONPATH": os.environ["SLIME_RUNFILES"], **variables}
        done = subprocess.run([sys.executable, str(RUNNER), f"--file={file}"], env=env)
        cases = ET.parse(report).iter("testcase")
        return done.returncode, [case.attrib["name"] for case in cases]

    return start


def test_runs_all_and_reports(run):
    assert run() == (0, ["test_one", "test_two", "test_three"])


def test_shards_part_the_tests(run, tmp_path: Path):
    seen = []
    for index in range(4):  # one more shard than tests: that one is empty and passes
        status = tmp_path / f"status{index}"
        code, names = run(
            TEST_TOTAL_SHARDS="4", TEST_SHARD_INDEX=str(index), TEST_SHARD_STATUS_FILE=str(status)
        )
        assert code == 0 and status.exists()
        seen += names
    assert sorted(seen) == ["test_one", "test_three", "test_two"]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("two", ["test_two"]),
        ("test_it.py::TestGroup::test_three", ["test_three"]),
        ("nothing_like_it", []),
    ],
    ids=["word", "node", "none"],  # not the words themselves: they would be part of the path
)
def test_filter(run, chosen, names):
    assert run(TESTBRIDGE_TEST_ONLY=chosen) == (0, names)


def test_failure_and_fail_fast(run):
    source = "def test_a(): assert False\ndef test_b(): pass\n"
    assert run(source) == (1, ["test_a", "test_b"])
    assert run(source, TESTBRIDGE_TEST_RUNNER_FAIL_FAST="1") == (1, ["test_a"])


def test_a_file_without_tests_fails(run):
    assert run("x = 1\n") == (5, [])


def test_a_file_that_does_not_load_fails(run):
    assert run("import nowhere\n")[0] == 2
