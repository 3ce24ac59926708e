"""Multi-head latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434) on SGLang's CPU path.

SGLang's own two gaps there: it makes rotary embeddings of models with YaRN scaling only, and it
sends prompts through an attention over full keys and values, which the `torch_native` backend looks
for in a cache that holds latents.
"""

from collections.abc import Callable
from typing import Any

_ROPE = "sglang.srt.layers.rotary_embedding.factory.get_rope_cpu"
_BACKEND = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend.__init__"


def register() -> None:
    """Hook both, in an engine on a CPU."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(_ROPE, _rope, HookType.AROUND)
    HookRegistry.register(_BACKEND, _attend_to_latents, HookType.AFTER)


def _rope(
    original: Callable[..., Any],
    head_size: int,
    rotary_dim: int,
    max_position: int,
    base: float,
    is_neox_style: bool = True,
    rope_scaling: dict[str, Any] | None = None,
    *options: Any,
) -> Any:
    """`get_rope_cpu`; without scaling the embedding that SGLang makes for other models."""
    sizes = (head_size, rotary_dim, max_position, base, is_neox_style, rope_scaling)
    if rope_scaling is not None:
        return original(*sizes, *options)
    from sglang.srt.layers.rotary_embedding.factory import get_rope

    *known, _device = options
    return get_rope(*sizes, *known)


def _attend_to_latents(*_: Any) -> None:
    """Once a process has this backend (others need not import models), say how models use it."""
    from sglang.srt.models.deepseek_common.attention_backend_handler import (
        AttentionBackendRegistry,
    )

    AttentionBackendRegistry.register("torch_native", _absorbed)


def _absorbed(attention: Any, forward_batch: Any) -> Any:
    """The method that multiplies queries by the key projection, so that keys are the latents."""
    from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import (
        AttnForwardMethod,
    )

    return AttnForwardMethod.MLA
