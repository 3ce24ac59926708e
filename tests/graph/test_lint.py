"""The whole source tree is clean: each check of tools/lint.py, or those that SLIME_LINT names."""

import os
from pathlib import Path

import pytest

from tools.lint import CHECKS, lint
from tools.lint_tools import ABSENT

# Runfiles are links into the source tree.
ROOT = Path(os.environ["SLIME_RUNFILES"], "pyproject.toml").resolve().parent


@pytest.mark.parametrize("check", os.environ.get("SLIME_LINT", " ".join(CHECKS)).split())
def test_lint(check: str) -> None:
    findings = lint(ROOT, [check])
    if "BAZEL_TEST" not in os.environ and any(ABSENT in finding for finding in findings):
        pytest.skip(findings[0])
    assert not findings, "\n".join(["", *findings])
