"""Data-parallel wrapping, the optimizer and its learning-rate schedule, and a safe step."""

from __future__ import annotations

import dataclasses
import math
from argparse import Namespace
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32
from megatron.core.optimizer.cpu_offloading import HybridDeviceOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.transformer.module import Float16Module, MegatronModule
from megatron.core.transformer.moe.router import TopKRouter

from slime.trainer.model_config import train_dtype
from slime.trainer.stateless_adam import make_stateless

# The names that options give to the dtypes of gradients, main weights and Adam's moments.
_DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.uint8,  # Megatron keeps 8-bit moments as bytes with a scale
}
_DTYPE_OPTIONS = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")


class NonFiniteError(RuntimeError):
    """A loss or gradient is NaN or infinite. The weights have not been touched by this step."""


def to_half_precision(args: Namespace, chunks: list[MegatronModule]) -> list[MegatronModule]:
    """The chunks in bf16 or fp16, if the options say so."""
    if args.bf16 or args.fp16:
        chunks = [Float16Module(chunk.config, chunk) for chunk in chunks]
        for module in (module for chunk in chunks for module in chunk.modules()):
            if isinstance(module, TopKRouter):
                # Before weights are loaded: a rounded bias chooses other experts.
                module._maintain_float32_expert_bias()
    return chunks


def wrap_model(args: Namespace, chunks: list[MegatronModule]) -> list[DistributedDataParallel]:
    """Megatron's DistributedDataParallel around each chunk; makes the gradients' buffers."""
    config = chunks[0].config
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=not args.grad_reduce_in_bf16,
        bucket_size=args.ddp_bucket_size,
        overlap_grad_reduce=args.overlap_grad_reduce,
        overlap_param_gather=args.overlap_param_gather,
        use_distributed_optimizer=args.use_distributed_optimizer,
    )
    wrapped = [
        DistributedDataParallel(config, ddp, chunk, disable_bucketing=index > 0)
        for index, chunk in enumerate(chunks)
    ]
    if ddp.overlap_grad_reduce:
        no_sync = [chunk.no_sync for chunk in wrapped]
        config.no_sync_func = no_sync if len(no_sync) > 1 else no_sync[0]
    return wrapped


def build_optimizer(
    args: Namespace, model: list[DistributedDataParallel]
) -> tuple[MegatronOptimizer, OptimizerParamScheduler]:
    """Adam over the wrapped chunks and its schedule, counted in optimizer steps.

    Weight decay does not apply to biases and norm weights (the scheduler applies that rule).
    """
    names = {field.name for field in dataclasses.fields(OptimizerConfig) if field.init}
    values = {k: v for k, v in vars(args).items() if k in names and v is not None}
    values.update({name: _DTYPES[values[name]] for name in _DTYPE_OPTIONS if name in values})
    values["params_dtype"] = train_dtype(args)
    optimizer = get_megatron_optimizer(OptimizerConfig(**values), model)
    if args.device == "cpu":
        _update_in_one_pass(optimizer)
    if args.use_stateless_adam:
        make_stateless(optimizer)
    if args.fp16:
        model[0].config.grad_scale_func = optimizer.scale_loss
    return optimizer, _scheduler(args, optimizer)


def _update_in_one_pass(optimizer: MegatronOptimizer) -> None:
    """torch's Adam for CPUs updates a parameter in one pass, without temporaries, if asked to."""
    for part in optimizer.chained_optimizers:
        if type(part.optimizer) in (torch.optim.Adam, torch.optim.AdamW):
            for group in part.optimizer.param_groups:
                group["fused"] = True


def _scheduler(args: Namespace, optimizer: MegatronOptimizer) -> OptimizerParamScheduler:
    """Learning rate and weight decay by optimizer step.

    A resumed run takes its position from the checkpoint, and everything else from its arguments
    unless ``--use-checkpoint-opt-param-scheduler`` says otherwise.
    """
    decay = args.lr_decay_iters or (args.num_rollout or 1) * (args.num_steps_per_rollout or 1)
    warmup = args.lr_warmup_iters or int((args.lr_warmup_fraction or 0.0) * decay)
    return OptimizerParamScheduler(
        optimizer,
        init_lr=args.lr_warmup_init if warmup else args.lr,
        max_lr=args.lr,
        min_lr=args.min_lr,
        lr_warmup_steps=warmup,
        lr_decay_steps=max(decay, warmup + 1),
        lr_decay_style=args.lr_decay_style,
        start_wd=args.start_weight_decay,
        end_wd=args.end_weight_decay,
        wd_incr_steps=decay,
        wd_incr_style=args.weight_decay_incr_style,
        use_checkpoint_opt_param_scheduler=args.use_checkpoint_opt_param_scheduler,
        override_opt_param_scheduler=not args.use_checkpoint_opt_param_scheduler,
        wsd_decay_steps=args.lr_wsd_decay_iters,
        lr_wsd_decay_style=args.lr_wsd_decay_style,
    )


def allocate_moments(optimizer: MegatronOptimizer) -> None:
    """Give Adam the moments it would make in its first step, among temporary tensors; a checkpoint
    from before that step needs them too.
    """
    for part in optimizer.chained_optimizers:
        if part.optimizer is None or part.init_state_fn is None:
            continue
        part.init_state_fn(part.optimizer, part.config)
        if isinstance(part.optimizer, torch.optim.Adam):  # AdamW is one; fused ones count by group
            for state in part.optimizer.state.values():
                state.setdefault("step", torch.tensor(0.0))


def allocate_offloaded(optimizer: MegatronOptimizer | None) -> None:
    """Before loading: give an offloaded optimizer its state, by a step on noise.

    Megatron does so while it loads, after the weights have come from the checkpoint, and spoils
    them.
    """
    for part in optimizer.chained_optimizers if optimizer is not None else []:
        if isinstance(part.optimizer, HybridDeviceOptimizer) and not part.optimizer.state:
            part.optimizer.dummy_step()


@torch.no_grad()
def reset_states(optimizer: MegatronOptimizer) -> None:
    """Adam starts anew: moments and step count are zero again, weights and schedule stay."""
    for part in optimizer.chained_optimizers:
        if part.optimizer is None:
            continue
        for group in part.optimizer.param_groups:  # where fused optimizers count
            if "step" in group:
                group["step"] = 0
        for state in part.optimizer.state.values():
            for name in ("exp_avg", "exp_avg_sq", "momentum_buffer", "step"):
                if torch.is_tensor(state.get(name)):
                    state[name].zero_()


@torch.no_grad()
def step(optimizer: Any) -> float:
    """Clip, check and apply the gradients. Returns the gradient norm before clipping (over all
    ranks).

    With fp16 an overflow is part of finding the loss scale: the step is skipped and the norm is
        infinite.

    Megatron's own ``step`` would scale all weights by NaN when one gradient is; here the norm is
    looked at before anything is changed.

    Raises:
        NonFiniteError: the norm is NaN or infinite (the same on every rank).
    """
    if optimizer.prepare_grads():
        return math.inf
    norm = optimizer.get_grad_norm()
    if not math.isfinite(norm):
        raise NonFiniteError(f"the gradient norm is {norm}")
    for part in optimizer.chained_optimizers:
        parameters = part.get_parameters()
        if part.config.clip_grad > 0 and parameters:
            clip_grad_by_total_norm_fp32(
                parameters,
                max_norm=part.config.clip_grad,
                total_norm=norm,
                use_decoupled_grad=part.config.use_precision_aware_optimizer_no_fp8_or_ds_fp8,
            )
    optimizer.step_with_ready_grads()
    return float(norm)
