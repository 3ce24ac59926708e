"""FLOPs of a transformer's forward pass, from its arguments."""

from argparse import Namespace
from collections.abc import Iterable


def calculate_fwd_flops(seqlens: Iterable[int], args: Namespace) -> int:
    """FLOPs (2 per multiply-add) of the forward pass over independent sequences.

    Per sequence of s tokens: matrix products that grow with s, and causal attention, in which a
    token sees (s + 1) / 2 tokens on average: QK^T and PV take 2 s (s + 1) q FLOPs with q = heads *
    head size. Norms, activations and the softmax are left out.

    Args:
        seqlens: Tokens of each sequence.
        args: Megatron's names (num_layers, hidden_size, num_attention_heads, num_query_groups,
            kv_channels, ffn_hidden_size, swiglu, vocab_size, and num_experts, moe_* for mixtures of
            experts).
    """
    heads = args.num_attention_heads
    head_size = getattr(args, "kv_channels", None) or args.hidden_size // heads
    query = heads * head_size
    key_value = (getattr(args, "num_query_groups", None) or heads) * head_size
    attention_weights = args.hidden_size * (2 * query + 2 * key_value)
    num_moe = sum(_moe_layers(args))
    weights = args.num_layers * attention_weights + args.hidden_size * args.vocab_size
    weights += (args.num_layers - num_moe) * _mlp_weights(args, args.ffn_hidden_size)
    if num_moe:
        weights += num_moe * _active_moe_weights(args)
    total = 0
    for length in seqlens:
        total += 2 * length * weights + args.num_layers * 2 * length * (length + 1) * query
    return total


def _mlp_weights(args: Namespace, ffn_hidden_size: int) -> int:
    matrices = 3 if getattr(args, "swiglu", True) else 2
    return matrices * int(args.hidden_size) * ffn_hidden_size


def _active_moe_weights(args: Namespace) -> int:
    """Weights a token meets in one mixture-of-experts layer: router, top-k experts, shared
    expert.
    """
    expert = _mlp_weights(args, getattr(args, "moe_ffn_hidden_size", None) or args.ffn_hidden_size)
    shared = getattr(args, "moe_shared_expert_intermediate_size", None) or 0
    router = int(args.hidden_size) * int(args.num_experts)
    return router + int(args.moe_router_topk) * expert + _mlp_weights(args, shared)


def _moe_layers(args: Namespace) -> list[bool]:
    """For each layer, whether it is a mixture of experts (`moe_layer_freq`: every n-th, or a 0/1
    list).
    """
    if not getattr(args, "num_experts", None):
        return [False] * args.num_layers
    frequency = getattr(args, "moe_layer_freq", 1) or 1
    if isinstance(frequency, int):
        return [layer % frequency == 0 for layer in range(args.num_layers)]
    return [bool(flag) for flag in frequency]
