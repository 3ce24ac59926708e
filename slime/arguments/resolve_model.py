"""The part of resolution that concerns the model: its shape from the checkpoint, its precision from
the device, its layout over the train ranks.
"""

from argparse import Namespace

from slime.arguments.facts import Facts
from slime.arguments.model_config import megatron_shape
from slime.arguments.raw import RawArguments


def resolve_precision(args: Namespace) -> None:
    """bf16 on CUDA and fp32 on a CPU, unless one is asked for. `dtype` is that of train ranks and
    engines.
    """
    if not (args.bf16 or args.fp16 or args.fp32):
        args.bf16 = args.device == "cuda"
    args.dtype = "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32"
    if args.transformer_impl is None:
        args.transformer_impl = "local" if args.device == "cpu" else "transformer_engine"


def resolve_layout(args: Namespace) -> None:
    """How the train ranks divide into model and data parallelism."""
    args.world_size = args.actor_num_nodes * args.actor_num_gpus_per_node
    args.model_parallel_size = (
        args.tensor_model_parallel_size
        * args.pipeline_model_parallel_size
        * args.context_parallel_size
    )
    args.data_parallel_size = args.world_size // args.model_parallel_size
    if args.expert_tensor_parallel_size is None:
        args.expert_tensor_parallel_size = args.tensor_model_parallel_size


def resolve_model(args: Namespace, raw: RawArguments, facts: Facts) -> None:
    """Fill in the shape from the checkpoint where it was not given, and what follows from it."""
    args.hf_architecture = dict(facts.hf_config or {})
    for name, value in megatron_shape(args.hf_architecture).items():
        if not raw.given(name):
            setattr(args, name, value)
    if args.device == "cpu" and not raw.given("make_vocab_size_divisible_by"):
        # Padding serves GPU kernels; here it would only add logits that no token has.
        args.make_vocab_size_divisible_by = 1
    if args.vocab_size is not None:
        args.vocab_size = padded_vocab_size(
            args.vocab_size, args.make_vocab_size_divisible_by, args.tensor_model_parallel_size
        )
    args.padded_vocab_size = args.vocab_size
    if args.num_query_groups is None:
        args.num_query_groups = args.num_attention_heads
    if args.kv_channels is None and args.hidden_size and args.num_attention_heads:
        args.kv_channels = args.hidden_size // args.num_attention_heads
    if args.window_size is not None:
        args.window_size = tuple(args.window_size)
    _resolve_virtual_stages(args)
    if args.rotary_base is None:
        args.rotary_base = 10000.0
    if args.norm_epsilon is None:
        args.norm_epsilon = 1e-5
    if not args.enable_mtp_training:
        args.mtp_num_layers = None  # layers that nobody trains need not be there
    elif args.mtp_num_layers is None:
        args.mtp_num_layers = args.hf_architecture.get("num_nextn_predict_layers")
    if args.model_name is None:
        args.model_name = args.hf_architecture.get("model_type")


def _resolve_virtual_stages(args: Namespace) -> None:
    """Megatron takes the model chunks of a stage as their number or as the layers of one."""
    if args.virtual_pipeline_model_parallel_size is None:
        args.virtual_pipeline_model_parallel_size = args.num_virtual_stages_per_pipeline_rank
    layers = args.num_layers_per_virtual_pipeline_stage
    if args.virtual_pipeline_model_parallel_size is None and layers and args.num_layers:
        per_stage = args.num_layers // args.pipeline_model_parallel_size
        args.virtual_pipeline_model_parallel_size = per_stage // layers
    args.microbatch_group_size_per_vp_stage = (
        args.microbatch_group_size_per_virtual_pipeline_stage or args.pipeline_model_parallel_size
    )


def padded_vocab_size(vocab_size: int, divisible_by: int, tensor_parallel_size: int) -> int:
    """The vocabulary rounded up so that every tensor-parallel rank holds a multiple of
    `divisible_by`.
    """
    multiple = divisible_by * tensor_parallel_size
    return -(-vocab_size // multiple) * multiple
