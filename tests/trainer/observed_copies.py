"""How gradients are coalesced while a case of train_ranks.py runs, and what that copies."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from slime.trainer import coalescing

_MEGATRON = "megatron.core.distributed.finalize_model_grads"


@contextmanager
def observed_copies(how: int | str | None) -> Iterator[list[int]]:
    """The bytes of each copy that is made inside, in order.

    Args:
        how: "whole" leaves it to Megatron, a number is the bound in bytes, None changes nothing.
    """
    megatron = importlib.import_module(_MEGATRON)
    copies: list[int] = []
    with ExitStack() as stack:
        for module in (megatron, coalescing):
            flatten = module._flatten_dense_tensors

            def observed(tensors: Any, flatten: Any = flatten) -> Any:
                together = flatten(tensors)
                copies.append(together.nbytes)
                return together

            stack.enter_context(patch.object(module, "_flatten_dense_tensors", observed))
        if how == "whole":
            original = megatron._allreduce_non_tensor_model_parallel_grads
            stack.enter_context(patch.object(coalescing, "sum_replicated_gradients", original))
        elif how is not None:
            stack.enter_context(patch.object(coalescing, "MAX_BYTES", how))
        yield copies
