"""SGLang plug-in (entry point group `sglang.srt.plugins`): every answer reports its routed experts.

The router passes on the fields of a request that it knows, and `return_routed_experts` is none of
them. So an engine of a run with `--use-rollout-routing-replay` does not wait to be asked.
"""

import os
from typing import Any

VARIABLE = "SLIME_RETURN_ROUTED_EXPERTS"
"""Set to 1 for the engines of such a run."""

_GENERATE = "sglang.srt.managers.tokenizer_manager.TokenizerManager.generate_request"


def register() -> None:
    """Entry point called by SGLang in each of its processes."""
    if os.environ.get(VARIABLE) != "1":
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(_GENERATE, ask, HookType.BEFORE)


def ask(manager: Any, request: Any, *args: Any, **kwargs: Any) -> None:
    """Before a request is taken apart; those for embeddings have no such field."""
    if hasattr(request, "return_routed_experts"):
        request.return_routed_experts = True
