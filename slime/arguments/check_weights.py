"""Checks of the way from the trainer's weights to the engines."""

import importlib.util
from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.errors import Problem

# Options of SGLang that divide weights in ways which `slime.weights.shards` does not describe.
_OTHER_DIVISIONS = {"quantization", "enable_dp_attention", "pp_size", "pipeline_parallel_size"}
_OTHER_DIVISIONS |= {"ep", "ep_size", "expert_parallel_size", "dp", "dp_size"}
_OTHER_DIVISIONS |= {"data_parallel_size"}


def check_weights(args: Namespace) -> Iterator[Problem]:
    """Modes and transports that go together, and what a checksum needs."""
    delta = args.update_weight_mode == "delta"
    if delta and args.update_weight_transport != "disk":
        message = "a delta is a file that brings a checkpoint on disk to the next version"
        remedy = "add --update-weight-transport disk"
        yield Problem("--update-weight-mode", "delta", message, remedy)
    local, shared = args.update_weight_local_checkpoint_dir, args.update_weight_disk_dir
    if delta and local == shared:
        message = "is --update-weight-disk-dir too: a delta would overwrite what it applies to"
        yield Problem("--update-weight-local-checkpoint-dir", local, message, "give two folders")
    kind = args.update_weight_delta_checksum
    if delta and kind == "blake3" and importlib.util.find_spec("blake3") is None:
        message = "needs the package blake3, which is not installed"
        remedy = "pip install blake3, or use xxh3-128"
        yield Problem("--update-weight-delta-checksum", kind, message, remedy)
    if args.custom_update_weight_post_write_path and args.update_weight_transport != "disk":
        path = args.custom_update_weight_post_write_path
        message = "is called after weights were written to disk, and none are"
        remedy = "add --update-weight-transport disk, or leave it out"
        yield Problem("--custom-update-weight-post-write-path", path, message, remedy)
    if args.check_weight_update_equal:
        yield from _check_comparison(args)


def _check_comparison(args: Namespace) -> Iterator[Problem]:
    """Engines whose ranks hold something else than slices of the tensors that were sent."""
    option = "--check-weight-update-equal"
    remedy = "leave it out, or test the same model with simpler engines"
    config = args.hf_architecture or {}
    if config.get("quantization_config"):
        message = "engines of quantised weights hash what the weights stand for"
        yield Problem(option, True, message, remedy)
    if config.get("kv_lora_rank"):
        message = "cannot follow how engines join and divide multi-latent attention"
        yield Problem(option, True, message, remedy)
    overrides = [g.overrides for m in args.sglang_models or () for g in m.server_groups]
    for given in (args.sglang_server_args, *overrides):
        for name in sorted(_OTHER_DIVISIONS & given.keys()):
            if given[name] not in (None, False, 1):
                message = f"cannot follow {name} {given[name]} of the engines"
                yield Problem(option, True, message, remedy)
    ranks, heads = args.rollout_num_gpus_per_engine, config.get("num_key_value_heads")
    if args.device == "cpu" and heads and heads % ranks:
        message = f"engines on a CPU fill {heads} key/value heads up for {ranks} ranks"
        yield Problem(option, True, message, remedy)
    fused = not args.sglang_server_args.get("disable_shared_experts_fusion")
    if args.device == "cuda" and config.get("n_shared_experts") and fused:
        message = "engines on GPUs may join shared experts with the others"
        yield Problem(option, True, message, "add --sglang-disable-shared-experts-fusion")
