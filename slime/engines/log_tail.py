"""The end of a process's log, for the message that says how the process ended."""

from pathlib import Path

_BYTES = 64 * 1024


def log_tail(log: Path, lines: int = 25) -> str:
    """The last lines of a log, headed by its path."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return f"(no log at {log})"
    tail = text.splitlines()[-lines:]
    return "\n".join([f"--- the end of {log}", *(f"  | {line}" for line in tail)])
