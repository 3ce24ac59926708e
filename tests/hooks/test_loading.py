"""Loading of functions by path."""

import json
import sys
from pathlib import Path

import pytest

from slime.hooks import load_function
from slime.samples.sample import Sample


def test_functions_classes_and_attributes_of_classes() -> None:
    assert load_function("json.dumps") is json.dumps
    assert load_function("json.decoder.JSONDecoder.decode") is json.JSONDecoder.decode
    assert load_function("slime.utils.types.Sample.Status") is Sample.Status


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("json", "no import path"),
        ("json.", "no import path"),
        ("a b.c", "no import path"),
        ("no_such_package.f", "no module named 'no_such_package'"),
        ("json.no_such_name", "json has no 'no_such_name'"),
        ("json.JSONDecoder.nope", "json.JSONDecoder has no 'nope'"),
    ],
)
def test_wrong_paths_say_what_is_wrong(path: str, message: str) -> None:
    with pytest.raises(ImportError, match=message):
        load_function(path)


def test_the_modules_own_errors_come_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import package_that_is_missing\n")
    (tmp_path / "raises.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="package_that_is_missing"):
        load_function("needs_more.f")
    with pytest.raises(ZeroDivisionError):
        load_function("raises.f")
    assert "raises" not in sys.modules
