"""Start one train process: threads, logs, process group, Megatron's parallel state, seeds.

Call :func:`init` before importing the rest of the room: it installs the CPU compatibility layer and
silences what Megatron says while it is imported.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import random
import socket
import warnings
from argparse import Namespace
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from slime.hooks.loading import load_function
from slime.trainer import cpu_compat
from slime.trainer.determinism import use_deterministic_kernels
from slime.trainer.reloadable_process_group import monkey_patch_torch_dist


def init(
    args: Namespace,
    rank: int = 0,
    world_size: int = 1,
    master_addr: str = "127.0.0.1",
    master_port: int = 29500,
) -> None:
    """Join the train group. Blocks until all ``world_size`` ranks have called it.

    Args:
        args: resolved arguments; ``args.device`` chooses gloo or NCCL.
        rank, world_size: of this process in the train group.
        master_addr, master_port: where rank 0 listens.

    Raises:
        torch.distributed.DistStoreError: not everyone came within
        ``args.distributed_timeout_minutes``.
    """
    _quiet_logs()
    if args.deterministic_mode:
        use_deterministic_kernels()
    torch.set_num_threads(args.train_threads)
    on_cpu = args.device == "cpu"
    if on_cpu:
        cpu_compat.install()
        if _is_loopback(master_addr):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    else:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank % torch.cuda.device_count())))
        # Without batched point-to-point calls, which stand-ins do not have, stages could lock up.
        if args.offload_train and args.pipeline_model_parallel_size == 1:
            monkey_patch_torch_dist()
    timeout = timedelta(minutes=args.distributed_timeout_minutes)
    dist.init_process_group(
        backend="gloo" if on_cpu else "nccl",
        store=_store(rank, world_size, master_addr, master_port, timeout),
        rank=rank,
        world_size=world_size,
        timeout=timeout,
    )
    initialize_model_parallel(args)
    if args.custom_megatron_init_path:
        load_function(args.custom_megatron_init_path)(args)


def _store(rank: int, world_size: int, address: str, port: int, timeout: timedelta) -> dist.Store:
    """The ranks' meeting point; rank 0 listens at ``address`` alone, not on every interface."""
    descriptor = None
    if rank == 0:
        with socket.create_server((address, port)) as server:
            descriptor = os.dup(server.fileno())
    return dist.TCPStore(
        address, port, world_size, rank == 0, timeout=timeout, master_listen_fd=descriptor
    )


def initialize_model_parallel(args: Namespace) -> None:
    """Megatron's groups for this layout, and the seeds, which depend on a rank's place in it."""
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=args.tensor_model_parallel_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=getattr(
            args, "virtual_pipeline_model_parallel_size", None
        ),
        context_parallel_size=args.context_parallel_size,
        expert_model_parallel_size=args.expert_model_parallel_size,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        distributed_timeout_minutes=args.distributed_timeout_minutes,
    )
    _set_seeds(args.seed)


def _set_seeds(seed: int) -> None:
    """Different on every pipeline stage (other layers), the same over data-parallel replicas."""
    from megatron.core import parallel_state, tensor_parallel

    seed += 100 * parallel_state.get_pipeline_model_parallel_rank()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


def _quiet_logs() -> None:
    """Warnings of Megatron and torch.distributed about optional packages say nothing to a user."""
    for name in ("megatron", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for module in ("megatron", "torch.distributed", "torch.nn.modules.module"):
        warnings.filterwarnings("ignore", module=rf"{module}(\..*)?")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
