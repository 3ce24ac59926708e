"""What a check says."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        check: What was looked at.
        status: `problem` is what a run would fail or suffer from; a `note` is worth knowing.
        found: What there is, in words.
        remedy: What to do about it; empty if nothing.
    """

    check: str
    status: Status
    found: str
    remedy: str = ""


def judge(check: str, good: bool, found: str, remedy: str) -> Finding:
    """`ok`, or a problem with its remedy."""
    return Finding(check, "ok", found) if good else Finding(check, "problem", found, remedy)
