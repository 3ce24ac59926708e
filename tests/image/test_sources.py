"""Bazel and Nix put the same files of the checkout into the image."""

import os
from pathlib import Path

import pytest

from ci.image.build import source_files

RUNFILES = Path(os.environ.get("SLIME_RUNFILES", os.getcwd()))
ROOT = (RUNFILES / "pyproject.toml").resolve().parent  # runfiles are links into the source tree


@pytest.mark.skipif("BAZEL_TEST" not in os.environ, reason="one of the lists is Bazel's")
def test_bazel_lists_what_lies_in_the_folders():
    by_bazel = (RUNFILES / "ci/image/cpu_sources").read_text().splitlines()
    in_folders = source_files(ROOT)
    remedy = "add its target to _CPU_DEPS in ci/image/BUILD.bazel"
    assert not set(in_folders) - set(by_bazel), remedy
    assert sorted(by_bazel) == sorted(in_folders)


def test_build_files_and_byte_code_stay_out(tmp_path: Path):
    for path in ("slime/a/b.py", "slime/a/BUILD.bazel", "slime/__pycache__/c.pyc", "tests/d.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    assert source_files(tmp_path) == ["slime/a/b.py"]
