"""SGLang plug-in (entry point group `sglang.srt.plugins`): batched attention for SGLang's CPU path.

SGLang's `torch_native` backend attends request by request in a Python loop. The hooks registered
here do a whole batch at once and leave everything they do not cover (cross attention, sliding
windows) to the original code. An installed plug-in is loaded into every SGLang process of the
environment, so `register` does nothing in engines that do not run on the CPU.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

_BACKEND = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend."
_PIN_HOST_MEMORY = "sglang.srt.mem_cache.pool_host.common._cuda_host_register"


def register() -> None:
    """Entry point called by SGLang in each of its processes, before the model is built."""
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    from slime.engines import cpu_deterministic, cpu_fork, cpu_mla, cpu_transfer

    cpu_deterministic.register()
    cpu_fork.register()
    cpu_mla.register()
    cpu_transfer.register()
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(_BACKEND + "init_forward_metadata", _forget_plan, HookType.BEFORE)
    HookRegistry.register(_BACKEND + "_run_sdpa_forward_decode", _decode, HookType.AROUND)
    HookRegistry.register(_BACKEND + "_run_sdpa_forward_extend", _extend, HookType.AROUND)
    HookRegistry.register(_PIN_HOST_MEMORY, _nothing_to_pin, HookType.REPLACE)
    # SGLang loads plug-ins before it sets up logging, so this line goes to the engine's log by
    # itself.
    print(f"slime: batched CPU attention in process {os.getpid()}", file=sys.stderr, flush=True)


def _nothing_to_pin(*args: Any, **kwargs: Any) -> None:
    """The buffer for the routed experts stays as it is: nothing copies to it from a GPU."""


def _forget_plan(backend: Any, *args: Any, **kwargs: Any) -> None:
    """A new forward pass: the gather plan of the last one, shared by all layers, is stale."""
    backend.slime_attention_plan = None


def _decode(
    original: Callable[..., Any],
    backend: Any,
    query: Any,
    output: Any,
    k_cache: Any,
    v_cache: Any,
    req_to_token: Any,
    req_pool_indices: Any,
    seq_lens: Any,
    *options: Any,
    **named_options: Any,
) -> Any:
    """`_run_sdpa_forward_decode`: one query token for each request."""
    from slime.engines import batched_attention as batched

    tables = (req_to_token, req_pool_indices, seq_lens)
    if backend.slime_attention_plan is None and _is_covered(*options, **named_options):
        if not batched.is_wasteful(seq_lens):
            backend.slime_attention_plan = batched.plan_decode(*tables)
    if not _is_covered(*options, **named_options) or backend.slime_attention_plan is None:
        return original(
            backend, query, output, k_cache, v_cache, *tables, *options, **named_options
        )
    return batched.attend(
        query, output, k_cache, v_cache, backend.slime_attention_plan, named_options["scaling"]
    )


def _extend(
    original: Callable[..., Any],
    backend: Any,
    query: Any,
    output: Any,
    k_cache: Any,
    v_cache: Any,
    req_to_token: Any,
    req_pool_indices: Any,
    seq_lens: Any,
    extend_prefix_lens: Any,
    extend_seq_lens: Any,
    *options: Any,
    **named_options: Any,
) -> Any:
    """`_run_sdpa_forward_extend`: the uncached part of each request's prompt."""
    from slime.engines import batched_attention as batched

    tables = (req_to_token, req_pool_indices, seq_lens, extend_prefix_lens, extend_seq_lens)
    covered = _is_covered(*options, **named_options) and named_options["causal"]
    if backend.slime_attention_plan is None and covered:
        if not (batched.is_wasteful(seq_lens) or batched.is_wasteful(extend_seq_lens)):
            group_size = query.shape[1] // k_cache.shape[1]
            backend.slime_attention_plan = batched.plan_extend(*tables, group_size)
    if not covered or backend.slime_attention_plan is None:
        return original(
            backend, query, output, k_cache, v_cache, *tables, *options, **named_options
        )
    return batched.attend(
        query, output, k_cache, v_cache, backend.slime_attention_plan, named_options["scaling"]
    )


def _is_covered(
    encoder_lens: Any = None,
    *,
    is_cross_attn: bool = False,
    sliding_window_size: int | None = None,
    **_: Any,
) -> bool:
    """Plain self-attention over everything that came before."""
    return encoder_lens is None and not is_cross_attn and sliding_window_size is None
