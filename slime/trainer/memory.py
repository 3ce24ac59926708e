"""Say how much memory there is; published as `slime.utils.memory_utils`."""

from __future__ import annotations

import gc
import logging
from typing import Any

import psutil
import torch
import torch.distributed as dist

logger = logging.getLogger(__name__)
_GB = 1024**3


def print_memory(msg: str, clear_before_print: bool = False) -> dict[str, Any]:
    """Log the memory of this rank's GPU, or of this process where there is none, in GB.

    Args:
        msg: what the program is about to do.
        clear_before_print: give cached GPU memory back first.

    Returns:
        What was logged.
    """
    if clear_before_print:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        figures = {
            "free": free,
            "used": total - free,
            "total": total,
            "allocated": torch.cuda.memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
        }
    else:
        host = psutil.virtual_memory()
        used = psutil.Process().memory_info().rss
        figures = {"free": host.available, "used": used, "total": host.total}
    rounded = {name: round(value / _GB, 2) for name, value in figures.items()}
    rank = dist.get_rank() if dist.is_initialized() else 0
    logger.info("memory in GB on rank %d, %s: %s", rank, msg, rounded)
    return rounded
