"""Whether the trainer can convert, and compute, the model of --hf-checkpoint."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slime.arguments.errors import Problem
from slime.arguments.hf_shapes import FAMILIES, Shapes, disagreements
from slime.arguments.model_config import rope_kind, rope_settings
from slime.arguments.weight_files import read_shapes

# Megatron has these numbers of Llama 3 built in.
_LLAMA3_ROPE = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def check_family(args: Namespace) -> Iterator[Problem]:
    """Models that would train as something they are not; nothing where no model is trained."""
    config = args.hf_architecture or {}
    model_type = config.get("model_type")
    if args.debug_rollout_only or args.custom_model_provider_path or model_type is None:
        return
    if model_type not in FAMILIES:
        message = f"is a {model_type} model, which the trainer cannot convert yet"
        yield Problem("--hf-checkpoint", args.hf_checkpoint, message, f"one of: {FAMILIES}")
        return
    yield from _check_prediction(args)
    found = list(unsupported(config))
    for message in found:
        yield Problem("--hf-checkpoint", args.hf_checkpoint, f"its config.json says {message}")
    for message in [] if found else disagreements(_shapes(Path(args.hf_checkpoint)), config):
        yield Problem("--hf-checkpoint", args.hf_checkpoint, message, "is it of another model?")


def _shapes(directory: Path) -> Shapes:
    """Of all tensors of a checkpoint; none where a file is damaged, which others say."""
    found: Shapes = {}
    try:
        for file in directory.glob("*.safetensors"):
            found |= read_shapes(file)
    except (OSError, ValueError):
        return {}
    return found


def _check_prediction(args: Namespace) -> Iterator[Problem]:
    """Multi-token prediction, where it is trained: what it goes together with."""
    if not args.enable_mtp_training:
        return
    option = "--enable-mtp-training"
    if not args.mtp_num_layers:
        message = "the model has no layers for it (num_nextn_predict_layers of its config.json)"
        yield Problem(option, True, message, "leave it out")
    for name in ("pipeline_model_parallel_size", "context_parallel_size"):
        if getattr(args, name) > 1:
            yield Problem(option, True, f"does not work with {name} {getattr(args, name)}")
    if args.recompute_granularity == "full":
        yield Problem(option, True, "does not work with full recompute", "selective does")
    if args.loss_type == "custom_loss":
        yield Problem(option, True, "does not work with a custom loss")


def unsupported(config: dict[str, Any]) -> Iterator[str]:
    """What the trainer would compute differently from what config.json says."""
    quantization = config.get("quantization_config") or {}
    if quantization and not _is_fp8_blocks(quantization):
        method = quantization.get("quant_method")
        yield f"that its weights are quantised by {method}; only FP8 in blocks of 128 is supported"
    if config.get("hidden_act", "silu") != "silu":
        yield f"hidden_act {config['hidden_act']}; only silu is supported"
    if config.get("mlp_bias"):
        yield "mlp_bias; biases of the feed-forward layer are not supported"
    if config.get("use_sliding_window"):
        yield "use_sliding_window; only full attention is supported"
    yield from _unsupported_rope(config)
    yield from _unsupported_router(config)


def _is_fp8_blocks(quantization: dict[str, Any]) -> bool:
    blocks = quantization.get("weight_block_size")
    return quantization.get("quant_method") == "fp8" and blocks == [128, 128]


def _unsupported_rope(config: dict[str, Any]) -> Iterator[str]:
    rope = rope_settings(config)
    kind, latent = rope_kind(config), bool(config.get("kv_lora_rank"))
    if kind not in ("default", "yarn" if latent else "llama3"):
        yield f"rope scaling {kind}, which is not supported for this model"
    elif kind == "llama3":
        for name, value in _LLAMA3_ROPE.items():
            if rope.get(name, value) != value:
                yield f"{name} {rope[name]}; only {value} is supported"


def _unsupported_router(config: dict[str, Any]) -> Iterator[str]:
    groups, chosen = config.get("n_group") or 1, config.get("topk_group") or 1
    experts = config.get("num_experts_per_tok") or 0
    if groups > 1 and experts // chosen != 2:
        yield (
            f"{experts} experts of {chosen} groups; groups are ranked by their two best experts "
            "only if there are two of each"
        )
    if config.get("n_routed_experts") and config.get("norm_topk_prob") is False:
        yield "norm_topk_prob false with a sigmoid router; its weights are always normalised"
