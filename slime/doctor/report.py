"""The findings as a table or as JSON."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slime.doctor.finding import Finding

_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


def counted(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings have each status."""
    found = Counter(one.status for one in findings)
    return {status: found[status] for status in ("ok", "note", "problem")}


def as_json(device: str, findings: Sequence[Finding]) -> str:
    """One object: the device, the findings in order, and how many have each status."""
    content = {
        "device": device,
        "findings": [asdict(one) for one in findings],
        "counted": counted(findings),
    }
    return json.dumps(content, indent=2)


def show(device: str, findings: Sequence[Finding], console: Console) -> None:
    """Print the table and a last line that sums up."""
    table = Table(title=f"slime doctor: runs on {device}", title_justify="left")
    table.add_column("check", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("found, and what to do", overflow="fold")
    for one in findings:
        text = f"{one.found}\n-> {one.remedy}" if one.remedy else one.found
        # Text from the machine is shown as it is: brackets in it are no markup.
        table.add_row(one.check, Text(one.status, _STYLES[one.status]), Text(text))
    console.print(table)
    number = counted(findings)
    console.print(f"{number['problem']} problems, {number['note']} notes, {number['ok']} ok")
