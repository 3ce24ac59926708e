"""The processes of an engine that lies on several machines, one on each, taken as one."""

import time
from collections.abc import Sequence

from slime.engines.errors import EngineDied
from slime.engines.host import Process


class NodeProcesses:
    """See the module: none of them can go on without the others, so all live and end together.

    Attributes:
        pid: Of the first, which serves the engine's requests.
        log: Of the first.
        parts: One for each machine, in the order of the ranks.
    """

    def __init__(self, parts: Sequence[Process]) -> None:
        self.parts = list(parts)
        self.pid, self.log = self.parts[0].pid, self.parts[0].log

    def is_alive(self) -> bool:
        """Whether all of them run."""
        return all(part.is_alive() for part in self.parts)

    def check(self) -> None:
        """Raise `EngineDied` if one ended or is frozen; it names all, as each takes the others
        with it."""
        reasons = []
        for part in self.parts:
            try:
                part.check()
            except EngineDied as error:
                reasons.append(str(error))
        if reasons:
            raise EngineDied("\n".join(reasons))

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of each log."""
        return "\n".join(part.log_tail(lines) for part in self.parts)

    def set_log_aside(self, suffix: str) -> None:
        """Give the logs another ending."""
        for part in self.parts:
            part.set_log_aside(suffix)

    def note_shared_memory(self) -> None:
        """Remember their shared memory."""
        for part in self.parts:
            part.note_shared_memory()

    def terminate(self) -> None:
        """Ask all to end."""
        for part in self.parts:
            part.terminate()

    def kill(self, patience: float) -> None:
        """Wait so many seconds for all together, then end them by force."""
        deadline = time.monotonic() + patience
        for part in self.parts:
            part.kill(deadline - time.monotonic())
