"""The closing line of CI counts test targets truly (events as Bazel 4.2.3 writes them)."""

import json
from pathlib import Path

import pytest

from ci.count_tests import main


def configured(label: str) -> dict:
    """A test target was selected."""
    return {
        "id": {"targetConfigured": {"label": label}},
        "configured": {"targetKind": "py_test rule", "testSize": "SMALL"},
    }


def ended(label: str, status: str) -> dict:
    """A test target ran."""
    return {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}}


LIBRARY = {
    "id": {"targetConfigured": {"label": "//x:lib"}},
    "configured": {"targetKind": "py_library rule"},
}
A, B, C = (configured(f"//x:{name}") for name in "abc")


@pytest.mark.parametrize(
    ("events", "bazel_exit", "last", "code"),
    [
        (
            [A, B, LIBRARY, ended("//x:a", "PASSED"), ended("//x:b", "FLAKY")],
            0,
            "2 passed, 0 failed",
            0,
        ),
        ([A, B, ended("//x:a", "PASSED"), ended("//x:b", "FAILED")], 3, "1 passed, 1 failed", 1),
        (
            [A, B, C, ended("//x:a", "PASSED"), ended("//x:b", "TIMEOUT")],
            1,
            "1 passed, 2 failed",
            1,
        ),
        ([A, ended("//x:a", "PASSED")], 1, "1 passed, 1 failed", 1),
        ([LIBRARY], 4, "0 passed, 1 failed", 1),
        ([], 0, "0 passed, 0 failed", 1),
    ],
    ids=["good", "failed", "not built", "broken package", "none selected", "nothing"],
)
def test_closing_line(events, bazel_exit, last, code, tmp_path: Path, capsys):
    path = tmp_path / "events.json"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert main([str(path), str(bazel_exit)]) == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_names_what_failed(tmp_path: Path, capsys):
    path = tmp_path / "events.json"
    path.write_text("".join(json.dumps(event) + "\n" for event in [A, B, ended("//x:a", "FAILED")]))
    main([str(path), "1"])
    assert capsys.readouterr().out.splitlines()[:2] == ["FAILED: //x:a", "FAILED TO BUILD: //x:b"]
