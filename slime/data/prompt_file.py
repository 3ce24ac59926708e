"""Rows of a data file: jsonl or parquet, with an optional slice in the path
(`train.jsonl@[0:100]`).
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from slime.arguments.errors import ConfigError, Problem
from slime.arguments.scan_data import split_slice

Row = dict[str, Any]
_MOST_PROBLEMS = 10  # bad lines that are listed before the reader gives up


def read_file(path: str | Path) -> Iterator[Row]:
    """Rows of `path`, sliced where it says so.

    Raises:
        ConfigError: The file is missing, unreadable or of no known kind, or lines of it are no JSON
            objects; up to ten of them are named with their line numbers.
    """
    return iter([row for _, row in read_rows(path)])


def read_rows(path: str | Path) -> list[tuple[str, Row]]:
    """Rows with their place (`train.jsonl:3`); raises as `read_file`."""
    name, part = split_slice(str(path))
    file = Path(name)
    if not file.is_file():
        raise ConfigError([Problem(str(file), None, "there is no such file", "check the path")])
    if file.suffix == ".parquet":
        return _read_parquet(file, part)
    if file.suffix in (".jsonl", ".json"):
        return _read_jsonl(file, part)
    raise ConfigError(
        [
            Problem(
                str(file), None, f"cannot read {file.suffix or 'this kind'}", "use jsonl or parquet"
            )
        ]
    )


def _read_jsonl(file: Path, part: slice) -> list[tuple[str, Row]]:
    try:
        lines = [
            (number, line)
            for number, line in enumerate(file.read_bytes().split(b"\n"), start=1)
            if line.strip()
        ]
    except OSError as error:
        raise ConfigError(
            [Problem(str(file), None, f"cannot be read: {error.strerror}")]
        ) from error
    rows, problems = [], []
    for number, line in lines[part]:
        try:
            row = json.loads(line)
        except ValueError as error:  # also bytes that are no UTF-8
            problems.append(Problem(f"{file}:{number}", None, f"is no JSON: {error}"))
            continue
        if not isinstance(row, dict):
            kind = type(row).__name__
            problems.append(Problem(f"{file}:{number}", None, f"is a JSON {kind}, no object"))
            continue
        rows.append((f"{file}:{number}", row))
    if problems:
        raise ConfigError(islice(problems, _MOST_PROBLEMS))
    return rows


def _read_parquet(file: Path, part: slice) -> list[tuple[str, Row]]:
    try:
        import pyarrow.parquet  # a dependency of parquet files only
    except ModuleNotFoundError as error:
        remedy = "install pyarrow, or convert the file to jsonl"
        raise ConfigError([Problem(str(file), None, "parquet needs pyarrow", remedy)]) from error
    try:
        rows = pyarrow.parquet.read_table(file).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError([Problem(str(file), None, f"is no parquet file: {error}")]) from error
    numbered = [(f"{file}: row {number}", row) for number, row in enumerate(rows)]
    return numbered[part]
