"""Groups by identity: which samples belong to one prompt, and which to one rollout.

Never by position and never by a fixed size: a rollout may fan out into several samples, and a group
may come short. Everything that normalises, counts or schedules by group uses these functions.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from slime.samples.sample import Sample

T = TypeVar("T")


def group_identity(sample: Sample) -> int:
    """`group_index`.

    Raises:
        ValueError: The sample has none, so its group is unknown.
    """
    if sample.group_index is None:
        raise ValueError(
            f"sample {sample.index} has no group_index: set it (samples of one prompt share it), "
            "or pass --disable-rewards-normalization"
        )
    return sample.group_index


def rollout_identities(samples: Sequence[Sample]) -> list[int]:
    """A dense id (0, 1, ...) per sample, in order of appearance; samples of one rollout share it.

    The identity is `rollout_id`, else `index`, else the position (each sample is a rollout of its
    own).
    """
    dense: dict[tuple[str, int], int] = {}
    result = []
    for position, sample in enumerate(samples):
        key = _rollout_key(sample, position)
        result.append(dense.setdefault(key, len(dense)))
    return result


def _rollout_key(sample: Sample, position: int) -> tuple[str, int]:
    if sample.rollout_id is not None:
        return ("rollout", sample.rollout_id)
    if sample.index is not None:
        return ("index", sample.index)
    return ("position", position)


def positions_by(identities: Iterable[T]) -> dict[T, list[int]]:
    """Positions of each identity, identities in order of first appearance."""
    positions: dict[T, list[int]] = {}
    for position, identity in enumerate(identities):
        positions.setdefault(identity, []).append(position)
    return positions


def flatten(nested: Any) -> list[Sample]:
    """All samples of arbitrarily nested lists, in order."""
    if isinstance(nested, Sample):
        return [nested]
    return [sample for item in nested for sample in flatten(item)]


def oldest_weight_version(samples: Iterable[Sample]) -> int | None:
    """The oldest weight version that made a token of them; None when no version is a number (an
    engine that was never updated).
    """
    versions = [v for sample in samples for v in sample.weight_versions if str(v).isdecimal()]
    return min(map(int, versions), default=None)
