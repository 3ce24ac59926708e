"""Buffer filters: which buffered groups the data source hands out next."""

from typing import Any

from slime.samples.sample import Sample


def pop_first(
    args: Any, rollout_id: int | None, buffer: list[list[Sample]], num_samples: int
) -> list[list[Sample]]:
    """Take the oldest `num_samples` groups (or all there are) out of `buffer`, in order."""
    taken = buffer[:num_samples]
    del buffer[:num_samples]
    return taken
