"""Profiles of some rollouts, as files in the run folder, and the record of memory beside them."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from slime.trainer.memory_history import record_memory

# --profile-target and the part of a rollout, as the stopwatch names it
_PARTS = {"train": "train_actor", "log_probs": "train_log_probs"}


class Profiler:
    """PyTorch's profiler around rollouts --profile-step-start to --profile-step-end (counted from
    the start of training), on --profile-ranks; and the record of memory, from here on.

    `train_overall` is everything between the start of a rollout's work and its end; one trace each
    for a rollout and a target, for chrome://tracing or Perfetto.
    """

    def __init__(self, args: Namespace, role: str = "actor") -> None:
        wanted = args.profile or args.use_pytorch_profiler
        mine = dist.get_rank() in args.profile_ranks
        self._targets = set(args.profile_target) if wanted and mine else set()
        self._rollouts = range(args.profile_step_start, args.profile_step_end)
        self._folder = Path(args.run_dir, "profile")
        self._role, self._number = role, -1
        self._overall: torch.profiler.profile | None = None
        self._memory = record_memory(args, role)

    def begin(self, number: int) -> None:
        """Work on rollout ``number`` begins."""
        self._number = number
        if "train_overall" in self._active():
            self._overall = _start()

    def end(self) -> None:
        """The rollout has been trained on."""
        if self._overall is not None:
            self._stop(self._overall, "train_overall")
            self._overall = None
        self._memory.trained()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Around a part of the rollout; inside an overall profile it is a labelled span of that."""
        alone = self._overall is None and _PARTS.get(name) in self._active()
        profile = _start() if alone else None
        try:
            with torch.profiler.record_function(f"slime/{name}"):
                yield
        finally:
            if profile is not None:
                self._stop(profile, _PARTS[name])

    def _active(self) -> set[str]:
        return self._targets if self._number in self._rollouts else set()

    def _stop(self, profile: torch.profiler.profile, target: str) -> None:
        profile.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._role}_{target}_{self._number}_rank{dist.get_rank()}.json"
        profile.export_chrome_trace(str(self._folder / name))


def _start() -> torch.profiler.profile:
    profile = torch.profiler.profile()
    profile.start()
    return profile
