"""A quick look through prompt files before anything starts: every line JSON, every needed key
there.
"""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slime.arguments.errors import Problem
from slime.arguments.scan_parquet import scan_parquet

SUFFIXES = (".jsonl", ".json", ".parquet")
MOST_PROBLEMS = 5  # shown per file
_SLICE = re.compile(r"(?P<path>.*?)@\[(?P<start>-?\d*):(?P<stop>-?\d*)\]$")


@dataclass(frozen=True)
class Key:
    """A key that every line must have.

    Attributes:
        option: The option that names the key.
        is_prompt: Its value is a text or a list of messages.
        is_needed: Its value is not null: a rule grades with it.
    """

    option: str
    is_prompt: bool = False
    is_needed: bool = False

    def violation(self, value: Any) -> tuple[str, str]:
        """(what is wrong with a value or "", remedy)."""
        if self.is_needed and value is None:
            return "is null, and a rule grades with it", "give it, or another --rm-type"
        if not self.is_prompt:
            return "", ""
        remedy = "a prompt is a text, or a list of messages with a role each"
        if not isinstance(value, str | list):
            return f"is a {type(value).__name__}", remedy
        if not value:
            return "is empty", remedy
        messages = value if isinstance(value, list) else []
        if not all(
            isinstance(item, dict) and isinstance(item.get("role"), str) for item in messages
        ):
            return "is a list with something that is no message", remedy
        return "", ""


@dataclass
class Scan:
    """What a prompt file holds.

    Attributes:
        problems: What is wrong with it.
        count: Its prompts, the slice applied; None when they were not all counted.
        names_grader: The metadata says `rm_type` (that of the first line, of a jsonl file).
    """

    problems: list[Problem] = field(default_factory=list)
    count: int | None = None
    names_grader: bool = False


def split_slice(path: str) -> tuple[str, slice]:
    """`data.jsonl@[0:100]` -> the path and the slice."""
    match = _SLICE.fullmatch(path)
    if match is None:
        return path, slice(None)
    start, stop = (int(text) if text else None for text in (match["start"], match["stop"]))
    return match["path"], slice(start, stop)


def scan_prompts(
    option: str,
    given: str,
    path: str,
    keys: Mapping[str, Key],
    deadline: float,
    metadata_key: str = "metadata",
) -> Scan:
    """Read a prompt file.

    Args:
        option: The option that names it, for messages.
        given: The path as given.
        path: The absolute path, maybe with a slice.
        keys: Name of a key that every line must have -> what is known of it.
        deadline: Time (time.monotonic) after which lines are only counted; the data source
            reads them all later anyway.
        metadata_key: Key of the metadata.
    """
    file, span = split_slice(path)
    source = Path(file)
    if not source.is_file():
        return Scan(
            [Problem(option, given, "no such file", "give a file of prompts: .jsonl or .parquet")]
        )
    if source.suffix not in SUFFIXES:
        message = f"unknown kind of file {source.suffix or '(no suffix)'}"
        return Scan([Problem(option, given, message, "give .jsonl or .parquet")])
    if source.suffix == ".parquet":
        columns = {name: key.option for name, key in keys.items()}
        scan = Scan(*scan_parquet(option, given, source, columns, metadata_key))
    else:
        try:
            scan = _scan_lines(option, source, keys, deadline, metadata_key)
        except OSError as error:
            return Scan([Problem(option, given, f"cannot be read: {error.strerror}")])
    if scan.count is not None and not scan.problems:
        scan.count = len(range(scan.count)[span])
        if scan.count == 0:
            scan.problems.append(
                Problem(option, given, "holds no prompts", "give at least one line")
            )
    return scan


def _scan_lines(
    option: str, source: Path, keys: Mapping[str, Key], deadline: float, metadata_key: str
) -> Scan:
    scan = Scan(count=0)
    bad = 0
    with source.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            scan.count = (scan.count or 0) + 1
            if number % 1024 == 0 and time.monotonic() > deadline:
                deadline = 0.0
            if deadline == 0.0:
                continue
            message, remedy, record = _check_line(line, keys)
            if scan.count == 1 and record is not None:
                metadata = record.get(metadata_key)
                scan.names_grader = isinstance(metadata, dict) and "rm_type" in metadata
            if message:
                bad += 1
                if bad <= MOST_PROBLEMS:
                    scan.problems.append(
                        Problem(f"{option} {source}:{number}", None, message, remedy)
                    )
    if bad > MOST_PROBLEMS:
        scan.problems.append(
            Problem(f"{option} {source}", None, f"{bad - MOST_PROBLEMS} more bad lines")
        )
    return scan


def _check_line(line: bytes, keys: Mapping[str, Key]) -> tuple[str, str, dict[str, object] | None]:
    """(what is wrong or "", remedy, the record)."""
    try:
        record = json.loads(line)
    except UnicodeDecodeError as error:
        return (
            f"not UTF-8: {error.reason} at byte {error.start + 1}",
            "save the file as UTF-8",
            None,
        )
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}", "one JSON object per line", None
    except RecursionError:
        return "nested too deeply", "one flat JSON object per line", None
    if not isinstance(record, dict):
        return f"not a JSON object but {type(record).__name__}", "one JSON object per line", None
    for name, key in keys.items():
        if name not in record:
            has = ", ".join(list(record)[:6])
            message = f"has no key {name!r} ({key.option}); it has: {has}"
            return message, f"give {key.option} another key", record
        message, remedy = key.violation(record[name])
        if message:
            return f"{name!r} ({key.option}) {message}", remedy, record
    return "", "", record
