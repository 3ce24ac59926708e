"""Sizes that follow from the model's shape: parameters, and memory of a train rank or an engine."""

from argparse import Namespace

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_GIB = 1024**3
# Measured with a model of no size, on a CPU: the interpreter with its libraries.
TRAIN_BASE_GIB = 0.7
ENGINE_BASE_GIB = 1.5
ROUTER_GIB = 0.1
RAY_GIB = 0.6
MANAGER_GIB = 0.4


def count_parameters(args: Namespace) -> int:
    """Parameters of the whole model; 0 where the shape is not known."""
    if not (args.num_layers and args.hidden_size and args.num_attention_heads and args.vocab_size):
        return 0
    hidden, head = args.hidden_size, args.kv_channels
    attention = hidden * head * (2 * args.num_attention_heads + 2 * args.num_query_groups)
    if args.add_qkv_bias:
        attention += head * (args.num_attention_heads + 2 * args.num_query_groups)
    norms = 2 * hidden + (2 * head if args.qk_layernorm else 0)
    feed_forward = sum(_feed_forward(args, has_experts) for has_experts in _expert_layers(args))
    embeddings = args.vocab_size * hidden * (2 if args.untie_embeddings_and_output_weights else 1)
    return int(args.num_layers * (attention + norms) + feed_forward + embeddings + hidden)


def train_rank_gib(args: Namespace) -> float:
    """Memory of one train rank without activations: weights, gradients, Adam's moments, in GiB.

    In 16-bit training, gradients are kept in fp32 and the optimizer has its own fp32 weights.
    """
    weight = _BYTES[args.dtype]
    optimizer = 8 if args.dtype == "float32" else 12
    shards = args.data_parallel_size if args.use_distributed_optimizer else 1
    parameters = count_parameters(args) / (
        args.tensor_model_parallel_size * args.pipeline_model_parallel_size
    )
    base = TRAIN_BASE_GIB if args.device == "cpu" else 0.0
    return float(base + parameters * (weight + 4 + optimizer / max(shards, 1)) / _GIB)


def engine_gib(args: Namespace, share: float = 1.0) -> float:
    """Memory in GiB of an engine, or of the process that has this share of it: weights, and the
    key/value cache where its size is set."""
    weight = _BYTES.get(str(args.sglang_server_args.get("dtype")), _BYTES[args.dtype])
    tokens = args.sglang_server_args.get("max_total_tokens", 0)
    cache = 0
    if args.num_layers and args.kv_channels:
        cache = 2 * args.num_layers * args.num_query_groups * args.kv_channels * weight * tokens
    base = ENGINE_BASE_GIB if args.device == "cpu" else 0.0
    return float(base + share * (count_parameters(args) * weight + cache) / _GIB)


def _expert_layers(args: Namespace) -> list[bool]:
    if not args.num_experts:
        return [False] * args.num_layers
    frequency = args.moe_layer_freq or 1
    if isinstance(frequency, int):
        return [layer % frequency == 0 for layer in range(args.num_layers)]
    return [bool(flag) for flag in frequency]


def _feed_forward(args: Namespace, has_experts: bool) -> int:
    matrices = 3 if args.swiglu else 2
    if not has_experts:
        return int(matrices * args.hidden_size * args.ffn_hidden_size)
    width = args.num_experts * args.moe_ffn_hidden_size + (
        args.moe_shared_expert_intermediate_size or 0
    )
    return int(matrices * args.hidden_size * width + args.hidden_size * args.num_experts)
