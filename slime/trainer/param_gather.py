"""``--overlap-param-gather``: only from one training step to the next.

With it Megatron's optimizer leaves the other ranks' parts of the weights as they were; the next
forward pass fetches them. Whatever else reads the weights (engines, exports, snapshots) would
find old ones, and a forward pass of the reference would fetch the policy's over it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from megatron.core.distributed import DistributedDataParallel


def fetch_no_more(model: list[DistributedDataParallel], complete: bool = True) -> None:
    """Forward passes fetch nothing from now on.

    Args:
        complete: fetch what the last step left out; collective.
    """
    for chunk in model:
        if chunk.use_forward_hook:
            chunk.disable_forward_pre_hook(param_sync=complete)


@contextlib.contextmanager
def fetching(model: list[DistributedDataParallel]) -> Iterator[None]:
    """Forward passes fetch inside; afterwards all weights are there."""
    for chunk in model:
        if chunk.use_forward_hook:
            chunk.enable_forward_pre_hook()
    complete = False
    try:
        yield
        complete = True
    finally:
        fetch_no_more(model, complete)
