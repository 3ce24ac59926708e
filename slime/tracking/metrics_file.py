"""``metrics.jsonl``: one JSON object per line, flushed, readable while the run goes on."""

import json
import math
from pathlib import Path
from typing import Any


class MetricsFile:
    """Appends records; a resumed run goes on in the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, kind: str, step: int, metrics: dict[str, Any]) -> None:
        """Append ``{"kind", "step", **metrics}``. JSON has no NaN: it becomes a string."""
        record = {"kind": kind, "step": step, **{key: _plain(v) for key, v in metrics.items()}}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Records of a metrics file. A last line cut short by a crash is left out.

    Where a resumed run repeated a step, the later record of a (kind, step) wins.
    """
    records: dict[tuple[str, int], dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        records[(record["kind"], record["step"])] = record
    return list(records.values())


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
