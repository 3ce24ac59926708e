"""The state of a data source: which one belongs to which rollout, and its file beside the
checkpoint.
"""

import dataclasses
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slime.data.sample_file import read_samples, write_samples
from slime.samples.sample import Sample

logger = logging.getLogger(__name__)


@dataclass
class SourceState:
    """Cursor, identities that are next, metadata and buffer; `rollout_id` is the last one
    trained.
    """

    epoch_id: int = 0
    sample_offset: int = 0
    sample_group_index: int = 0
    sample_index: int = 0
    num_prompts: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    rollout_id: int = -1
    buffer: list[list[Sample]] = field(default_factory=list)


class History:
    """Which state belongs to which rollout, while later rollouts already take prompts.

    The state after a rollout is the one it was committed with, else the one before the next rollout
    took its first prompts. Where nobody names rollouts (a custom loop), each is taken to have
    trained on rollout_batch_size groups: after a resume a prompt may then come twice, but none that
    was in flight is lost. A rollout may be saved by one thread while another hands out prompts.
    """

    def __init__(self, rollout_batch_size: int, first_rollout_id: int) -> None:
        self._rollout_batch_size = rollout_batch_size
        self._first_rollout_id = first_rollout_id
        self._rollouts_are_named = False
        self._lock = threading.Lock()
        self._current: int | None = None
        self._committed: dict[int, SourceState] = {}
        self._num_handed_out = 0
        self._after_handing_out: list[tuple[int, SourceState]] = []

    def before_handing_out(self, rollout_id: int | None, state: Callable[[], SourceState]) -> None:
        """Rollout `rollout_id` (None: unknown) takes prompts; `state()` holds before it."""
        if rollout_id is None or rollout_id == self._current:
            return
        if self._current is not None and self._current not in self._committed:
            self.commit(self._current, state())
        self._current = rollout_id
        self._rollouts_are_named = True

    def after_handing_out(self, num_groups: int, state: Callable[[], SourceState]) -> None:
        """`num_groups` were just handed out; `state()` holds after it."""
        if self._rollouts_are_named:
            return
        self._num_handed_out += num_groups
        self._after_handing_out.append((self._num_handed_out, state()))

    def taken_back(self) -> None:
        """Groups came back: counting tells no more which of them were trained on."""
        self._after_handing_out.clear()

    def commit(self, rollout_id: int, state: SourceState) -> None:
        """`state` is what holds after rollout `rollout_id`."""
        self._rollouts_are_named = True
        with self._lock:
            self._committed[rollout_id] = state
        self._after_handing_out.clear()

    def state_after(self, rollout_id: int) -> SourceState | None:
        """The state after training on rollout `rollout_id`; None: the present one."""
        with self._lock:
            state = self._committed.get(rollout_id)
            # A rollout may be saved twice (on an interval, at the end); earlier ones are done with.
            self._committed = {r: s for r, s in self._committed.items() if r >= rollout_id}
        if state is None and not self._rollouts_are_named:
            trained = (rollout_id + 1 - self._first_rollout_id) * self._rollout_batch_size
            candidates = (s for handed, s in self._after_handing_out if handed >= trained)
            state = next(candidates, None)
        return state


def state_path(directory: str | Path, rollout_id: int) -> Path:
    """`<checkpoint>/rollout/data_source_0000019.json`."""
    return Path(directory) / "rollout" / f"data_source_{rollout_id:07d}.json"


def write_state(path: Path, state: SourceState) -> None:
    """Write the state; the file is whole or not there."""
    header = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    write_samples(path, header.pop("buffer"), header)


def read_state(directory: str | Path | None, rollout_id: int | None) -> SourceState | None:
    """The state after `rollout_id`, by default after the latest checkpoint; None where there is
    none.

    Raises:
        ConfigError: The file is unreadable or was written by a newer version.
    """
    if directory is None:
        return None
    if rollout_id is None:
        rollout_id = _latest(Path(directory))
    if rollout_id is None or rollout_id < 0:
        return None
    path = state_path(directory, rollout_id)
    if not path.exists():
        logger.warning("no data state at %s: prompts start from the beginning", path)
        return None
    groups, header = read_samples(path)
    return SourceState(**header, buffer=groups)


def _latest(directory: Path) -> int | None:
    """Iteration of the latest checkpoint, which counts rollouts; None for a fresh or converted
    one.
    """
    try:
        text = (directory / "latest_checkpointed_iteration.txt").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
