"""Which way the weights go, from the options and the device."""

from argparse import Namespace
from functools import partial
from typing import Any

from slime.arguments.topology import has_engine_over_nodes
from slime.weights.delta import DeltaWeightUpdater
from slime.weights.disk import DiskWeightUpdater
from slime.weights.distributed import DistributedWeightUpdater
from slime.weights.equality import ExpectedChecksums
from slime.weights.expected import checkpoint_shapes
from slime.weights.tensor import TensorWeightUpdater
from slime.weights.updater import WeightUpdater


def make_updater(args: Namespace, node: str = "", host: str = "127.0.0.1") -> WeightUpdater:
    """The updater of a trainer on Ray's node `node`, which engines reach at the address `host`.

    `--update-weight-transport nccl` means a process group where trainer and engines have devices of
    their own, or the engines are somebody else's, or one lies on several machines; neighbours on
    one machine use its memory.
    """
    options: dict[str, Any] = {"expected": checkpoint_shapes(args.hf_checkpoint)}
    if args.check_weight_update_equal:
        options["checksums"] = partial(ExpectedChecksums, args.hf_architecture, device=args.device)
    if args.update_weight_mode == "delta":
        local = args.update_weight_local_checkpoint_dir
        return DeltaWeightUpdater(args, args.update_weight_disk_dir, local, **options)
    if args.update_weight_transport == "disk":
        keep = args.update_weight_disk_keep_files
        return DiskWeightUpdater(args, args.update_weight_disk_dir, keep, **options)
    apart = args.device == "cuda" and not args.colocate
    external = args.rollout_external_engine_addrs
    if apart or external or has_engine_over_nodes(args):
        # NCCL has no place for two ranks on one GPU, gloo takes also what lies on GPUs.
        backend = "nccl" if args.device == "cuda" and (apart or external) else "gloo"
        return DistributedWeightUpdater(backend, host=host, **options)
    return TensorWeightUpdater(node=node, **options)
