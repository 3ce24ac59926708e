"""Checks of the way from the trainer's weights to the engines."""

import importlib.util
from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.errors import Problem


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
    message = ""
    if args.device == "cuda":
        message = "engines hash weights in host memory with SHA-256, but on a GPU differently"
    elif args.rollout_num_gpus_per_engine != 1:
        message = "a rank of a divided engine holds, and hashes, only a part of each tensor"
    if message:
        remedy = "leave it out, or test the same model with engines of one rank on a CPU"
        yield Problem("--check-weight-update-equal", True, message, remedy)
