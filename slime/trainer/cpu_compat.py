"""Lets megatron-core 0.16.1 run where CUDA is absent: every patch, its reason, in this one module.

Megatron asks for CUDA by name in many places that have nothing to do with a GPU (a scalar made with
``device="cuda"``, a type compared as a string). ``install`` redirects those to the CPU. It changes
torch for the whole process, so it is called by train processes only, and only when
``torch.cuda.is_available()`` is False.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._device

from slime.trainer import lean_functions

_CPU = torch.device("cpu")
_FACTORIES = ("tensor", "zeros", "ones", "empty", "full", "arange", "empty_like", "zeros_like")
_installed = False


def install() -> None:
    """Apply every patch once, before megatron.core is imported; with CUDA, do nothing."""
    global _installed
    if _installed or torch.cuda.is_available():
        return
    # Without it Megatron warns on every layer; the setting only concerns CUDA stream order.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    _patch_factories()
    _patch_moves_and_types()
    _patch_streams()
    _patch_rng()
    _patch_norm()
    _patch_layers()
    _patch_moe()
    _patch_uneven_collectives()
    _patch_latent_attention()
    _patch_distributed_optimizer()
    _patch_offloaded_optimizer()
    _installed = True


def _patch_factories() -> None:
    """``device="cuda"`` and ``device=torch.cuda.current_device()`` make CPU tensors."""

    def on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        @functools.wraps(factory)
        def make(*args: Any, **kwargs: Any) -> torch.Tensor:
            device = kwargs.get("device")
            if device is not None and torch.device(device).type == "cuda":
                kwargs["device"] = _CPU
            kwargs.pop("pin_memory", None)
            return factory(*args, **kwargs)

        return make

    # `with torch.device(...)` recognises factories by identity, from a set made at first use: make
    # it now.
    torch.utils._device._device_constructors()
    for name in _FACTORIES:
        setattr(torch, name, on_cpu(getattr(torch, name)))
    torch.cuda.current_device = lambda: _CPU  # type: ignore[assignment, return-value]


def _patch_moves_and_types() -> None:
    """``.cuda()`` is the identity; ``.type()`` says torch.cuda.X, as optimizers expect."""
    tensor: Any = torch.Tensor
    module: Any = torch.nn.Module
    tensor.cuda = module.cuda = lambda self, *a, **k: self
    tensor.record_stream = lambda self, stream: None
    plain_type = tensor.type

    def type_(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            return plain_type(self).replace("torch.", "torch.cuda.", 1)
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.")
        return plain_type(self, dtype, *args, **kwargs)

    tensor.type = type_


class _NoStream:
    """A stream or event on a device that has one queue: everything is in order already."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes whatever torch.cuda.Stream or Event takes."""

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        return None

    wait_stream = wait_event = wait = record = synchronize = _nothing

    def record_event(self, event: _NoStream | None = None) -> _NoStream:
        return event or _NoStream()

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: _NoStream) -> float:
        return 0.0


def _patch_streams() -> None:
    """Streams, events, synchronisation and NVTX ranges do nothing."""

    @contextlib.contextmanager
    def stream(value: Any) -> Iterator[Any]:
        yield value

    cuda: Any = torch.cuda
    cuda.Stream = cuda.Event = _NoStream
    cuda.current_stream = cuda.default_stream = lambda *a, **k: _NoStream()
    cuda.stream = stream
    cuda.synchronize = lambda *a, **k: None
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *a: None


def _patch_rng() -> None:
    """The "CUDA" generator whose states Megatron tracks is the CPU generator."""
    import megatron.core.tensor_parallel.random as mcore_random

    cuda: Any = torch.cuda
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *a, **k: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *a, **k: torch.set_rng_state(state)
    cuda.manual_seed = lambda seed: torch.default_generator.manual_seed(seed)
    mcore_random._get_cuda_rng_state = lambda *a, **k: torch.get_rng_state()
    mcore_random._set_cuda_rng_state = lambda state, *a, **k: torch.set_rng_state(state)


def _patch_norm() -> None:
    """``WrappedTorchNorm`` refuses sequence parallelism; all it needs is the mark on its weight."""
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    def new(
        cls: type, config: Any, hidden_size: int, eps: float = 1e-5, *a: Any, **k: Any
    ) -> torch.nn.Module:
        rms = config.normalization == "RMSNorm"
        norm = (lean_functions.RMSNorm if rms else torch.nn.LayerNorm)(hidden_size, eps=eps)
        for param in norm.parameters():
            param.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return norm

    WrappedTorchNorm.__new__ = new


def _patch_layers() -> None:
    """What stands in for TransformerEngine's fused functions; Megatron's would be compiled here."""
    import megatron.core.transformer.attention as attention
    import megatron.core.transformer.mlp as mlp
    import megatron.core.transformer.moe.shared_experts as shared_experts

    attention.apply_rotary_pos_emb = lean_functions.rotation(attention.apply_rotary_pos_emb)
    mlp.bias_swiglu_impl = shared_experts.bias_swiglu_impl = lean_functions.swiglu
    mlp.weighted_bias_swiglu_impl = lean_functions.weighted_swiglu


def _patch_moe() -> None:
    """Without TransformerEngine a name is undefined, and split sizes stay tensors."""
    import megatron.core.transformer.moe.moe_utils as moe_utils
    import megatron.core.transformer.moe.token_dispatcher as dispatcher

    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    move = dispatcher.maybe_move_tensor_to_cpu

    def move_to_cpu(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        moved = move(tensor, as_numpy, record_stream)
        return moved.numpy() if as_numpy and torch.is_tensor(moved) else moved

    dispatcher.maybe_move_tensor_to_cpu = move_to_cpu


def _patch_uneven_collectives() -> None:
    """Tensor-parallel experts gather different numbers of tokens, which gloo cannot."""
    import megatron.core.tensor_parallel.mappings as mappings

    gather, scatter = mappings._gather_along_first_dim, mappings._reduce_scatter_along_first_dim

    def gather_any(x: torch.Tensor, group: Any, sizes: Any = None, use_buffer: bool = False) -> Any:
        if sizes is None or len(set(sizes)) == 1:
            return gather(x, group, sizes, use_buffer)
        padded = x.new_zeros(max(sizes), *x.shape[1:])
        padded[: len(x)] = x
        parts = gather(padded, group).chunk(len(sizes))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    def scatter_any(
        x: torch.Tensor, group: Any, sizes: Any = None, use_buffer: bool = False
    ) -> Any:
        if sizes is None or len(set(sizes)) == 1:
            return scatter(x, group, sizes, use_buffer)
        total = x.contiguous().clone()
        torch.distributed.all_reduce(total, group=group)
        return total.split(sizes)[group.rank()].contiguous()

    mappings._gather_along_first_dim = gather_any
    mappings._reduce_scatter_along_first_dim = scatter_any


def _patch_latent_attention() -> None:
    """Its module takes TransformerEngine for installed because Megatron's wrapper of it imports."""
    import megatron.core.transformer.multi_latent_attention as latent

    latent.HAVE_TE = False


def _patch_distributed_optimizer() -> None:
    """DistributedOptimizer over torch's AdamW can neither save a fresh state nor resume."""
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer as Optimizer

    plain_state_dict, plain_load = Optimizer.state_dict, Optimizer.load_state_dict
    plain_set = Optimizer._set_main_param_and_optimizer_states

    def state_dict(self: Any) -> Any:
        # 1. It asserts that there is one `step`; before the first step there is no state at all.
        for group in self.optimizer.param_groups if self.optimizer is not None else []:
            for param in group["params"]:
                if not self.optimizer.state.get(param):
                    zeros = {
                        "exp_avg": torch.zeros_like(param),
                        "exp_avg_sq": torch.zeros_like(param),
                    }
                    self.optimizer.state[param] = {"step": torch.tensor(0.0), **zeros}
        return plain_state_dict(self)

    def set_states(self: Any, model_param: Any, tensors: dict[str, Any]) -> Any:
        # 2. It copies every key of the state, `step` among them, which a checkpoint leaves out.
        group, order = self.model_param_group_index_map[model_param]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        if "step" in state and "step" not in tensors:
            tensors = {**tensors, "step": state["step"]}
        return plain_set(self, model_param, tensors)

    def load_state_dict(self: Any, state: Any) -> Any:
        # 3. After loading, all parameters share ONE `step` tensor, which each of them then
        # increments.
        result = plain_load(self, state)
        for param_state in self.optimizer.state.values() if self.optimizer is not None else []:
            if torch.is_tensor(param_state.get("step")):
                param_state["step"] = param_state["step"].clone()
        return result

    Optimizer.state_dict = state_dict
    Optimizer.load_state_dict = load_state_dict
    Optimizer._set_main_param_and_optimizer_states = set_states


def _patch_offloaded_optimizer() -> None:
    """HybridDeviceOptimizer asks for TransformerEngine's version, and offloads what is on a GPU.

    Here every parameter counts as there. The offloaded share gets copies and updates of its
    own, as on a GPU; only the transfers are missing.
    """
    import megatron.core.optimizer.optimizer_config as optimizer_config
    from megatron.core.optimizer.cpu_offloading.hybrid_optimizer import HybridDeviceOptimizer

    optimizer_config.is_te_min_version = lambda *a, **k: False

    def sub_optimizer_groups(self: Any, offload_fraction: float) -> tuple[Any, ...]:
        params = [param for group in self.param_groups for param in group["params"]]
        left = sum(param.numel() for param in params) * offload_fraction
        host_groups, device_groups = [], []
        to_host, to_device, to_fp32 = {}, {}, {}
        for group in self.param_groups:
            host, device = {**group, "params": []}, {**group, "params": []}
            for param in group["params"]:
                offloaded, inner = left > 0, param
                if offloaded or (self.param_update_in_fp32 and param.dtype != torch.float32):
                    inner = param.detach().clone().float()
                if inner.dtype != param.dtype:
                    to_fp32[param] = inner
                if offloaded:
                    left -= param.numel()
                    to_host[param], to_device[inner] = inner, param
                (host if offloaded else device)["params"].append(inner)
            host_groups += [host] if host["params"] else []
            device_groups += [device] if device["params"] else []
        return host_groups, device_groups, to_host, to_device, to_fp32

    HybridDeviceOptimizer._get_sub_optimizer_param_groups = sub_optimizer_groups
