"""DeepEP's buffers must not lie in memory that torch_memory_saver unmaps.

NVSHMEM registers them with the network card; unmapped and mapped again they would be another
memory. So the saver looks away while a `deep_ep.Buffer` is made.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch

_ADVICE = (
    "DeepEP buffers may be placed in memory that is offloaded, because {missing}. "
    "Install a matching torch_memory_saver (0.0.9 to 0.0.10), or train without --offload-train."
)


def protect_deep_ep_buffers() -> None:
    """Wrap `deep_ep.Buffer.__init__`; without DeepEP do nothing. May be called again."""
    try:
        from deep_ep import Buffer
    except ImportError:
        return
    if getattr(Buffer.__init__, "outside_memory_saver", False):
        return
    plain = Buffer.__init__

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        with outside_memory_saver():
            plain(self, *args, **kwargs)

    init.outside_memory_saver = True  # type: ignore[attr-defined]
    Buffer.__init__ = init


@contextlib.contextmanager
def outside_memory_saver() -> Iterator[None]:
    """What is allocated inside is left alone by torch_memory_saver.

    The saver's state from before comes back in every case: after an error, and where it was off
    already, as in a call inside another. A process that uses no saver is left as it is; symbols
    that an unknown version lacks are warned of here, at the first use.
    """
    library = _saver_library()
    if library is None:
        yield
        return
    torch.cuda.synchronize()  # allocations of kernels under way belong to the region around
    before = bool(library.tms_get_interesting_region())
    library.tms_set_interesting_region(False)
    try:
        yield
    finally:
        library.tms_set_interesting_region(before)


def _saver_library() -> Any:
    """The C library of the saver in use, None where there is none."""
    try:
        from torch_memory_saver import torch_memory_saver
    except ImportError:
        return None
    try:
        if torch_memory_saver._impl is None:
            return None  # never used in this process
        library = torch_memory_saver._impl._binary_wrapper.cdll
        _ = library.tms_get_interesting_region, library.tms_set_interesting_region
    except AttributeError as error:
        warnings.warn(_ADVICE.format(missing=str(error)), RuntimeWarning, stacklevel=3)
        return None
    return library
