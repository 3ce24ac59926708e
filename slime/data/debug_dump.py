"""Dumps of whole rollouts, for replay without engines."""

import math
from pathlib import Path
from typing import Any

from slime.data.sample_file import read_samples, write_samples
from slime.samples.groups import flatten, positions_by, rollout_identities
from slime.samples.sample import Sample


def dump_path(path_template: str, rollout_id: int, evaluation: bool = False) -> Path:
    """`path_template` with `{rollout_id}` filled in (`eval_3` for the evaluation at rollout 3)."""
    return Path(path_template.format(rollout_id=f"{'eval_' if evaluation else ''}{rollout_id}"))


def save_debug_rollout_data(
    path_template: str | Path, data: Any, *, rollout_id: int, evaluation: bool
) -> None:
    """Write all samples of a rollout.

    Args:
        path_template: Path with `{rollout_id}` in it.
        data: (Nested lists of) samples, or a dict of such lists per evaluation set.
        rollout_id: The rollout.
        evaluation: Whether it is an evaluation; those get names of their own.
    """
    nested = list(data.values()) if isinstance(data, dict) else data
    header = {"rollout_id": rollout_id, "evaluation": evaluation}
    path = dump_path(str(path_template), rollout_id, evaluation)
    write_samples(path, flatten(nested), header)


def load_debug_rollout_data(
    path_template: str | Path, *, rollout_id: int, subsample_ratio: float | None = None
) -> list[Sample]:
    """The samples of a dump, in the order they were written.

    Args:
        path_template: Path with `{rollout_id}` in it.
        rollout_id: The rollout.
        subsample_ratio: Share of the groups to keep, from the front, at least one; samples of one
            group stay together.

    Raises:
        ConfigError: The dump is missing or unreadable.
    """
    samples, _ = read_samples(dump_path(str(path_template), rollout_id))
    if subsample_ratio is None:
        return samples
    # Samples without a group are grouped by rollout, so that a fan-out is not torn apart.
    rollouts = rollout_identities(samples)
    keys = [
        ("rollout", rollout) if sample.group_index is None else ("group", sample.group_index)
        for sample, rollout in zip(samples, rollouts, strict=True)
    ]
    groups = list(positions_by(keys).values())
    kept = groups[: max(1, math.ceil(len(groups) * subsample_ratio))]
    return [samples[position] for position in sorted(p for group in kept for p in group)]
