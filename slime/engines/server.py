"""What an engine and a router have in common: an address, a process if we started it, a failure."""

from slime.engines.errors import EngineDied
from slime.engines.host import Process


class Server:
    """One server of a run.

    Attributes:
        process: None if somebody else runs it.
    """

    def __init__(self, name: str, url: str, process: Process | None = None) -> None:
        self.name, self.url, self.process = name, url, process
        self._failure = ""

    def failure(self) -> str:
        """Why it cannot be used: how it ended, or what was reported; empty if nothing is known."""
        if self.process is not None:
            try:
                self.process.check()
            except EngineDied as error:
                return str(error)
        return self._failure

    def forget_failure(self) -> None:
        """What was reported is no longer true."""
        self._failure = ""

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of its log."""
        return self.process.log_tail(lines) if self.process else f"(the log is at {self.url})"
