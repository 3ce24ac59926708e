"""Checks of the optimizer's options: what Megatron refuses by an assertion, or cannot do."""

from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.errors import Problem, option

_DTYPES = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")


def check_optimizer(args: Namespace) -> Iterator[Problem]:
    """Lower precision, state in host memory and stateless Adam need what they need."""
    aware = args.use_precision_aware_optimizer
    if aware and not args.use_distributed_optimizer:
        yield Problem(
            "--use-precision-aware-optimizer",
            True,
            "works with the distributed optimizer only",
            "add --use-distributed-optimizer",
        )
    for dest in _DTYPES:
        if getattr(args, dest) != "fp32" and not aware:
            message = "needs the precision-aware optimizer"
            remedy = "add --use-precision-aware-optimizer"
            yield Problem(option(dest), getattr(args, dest), message, remedy)
        elif getattr(args, dest) != "fp32" and args.device == "cpu":
            message = "needs TransformerEngine's Adam, which runs on GPUs only"
            yield Problem(option(dest), getattr(args, dest), message, "leave it out on a CPU")
    if args.optimizer_cpu_offload:
        yield from _check_offload(args)
    elif aware and args.device == "cpu":
        message = "needs TransformerEngine's Adam, which runs on GPUs only"
        remedy = "add --optimizer-cpu-offload, which brings its own, or leave it out"
        yield Problem("--use-precision-aware-optimizer", True, message, remedy)
    if args.use_stateless_adam and args.optimizer != "adam":
        message = "takes Adam's place"
        yield Problem("--use-stateless-adam", True, message, "leave --optimizer out")


def check_release(args: Namespace) -> Iterator[Problem]:
    """A trainer that is started anew for each rollout goes on from a checkpoint."""
    if not args.release_train:
        return
    lost = ("use_critic", "keep_old_actor", "ref_update_interval", "offload_train")
    for dest in (*lost, "no_save_optim", "no_save_rng", "no_load_optim", "no_load_rng"):
        if getattr(args, dest):
            message = f"does not go together with {option(dest)}"
            yield Problem("--release-train", True, message, "leave one of the two out")


def check_snapshots(args: Namespace) -> Iterator[Problem]:
    """Memory snapshots are of GPU memory, by PyTorch."""
    if args.memory_snapshot_num_steps is None:
        return
    if args.device == "cpu":
        message = "records GPU memory; there is none here"
        remedy = "leave it out; benchmarks/run_memory.py measures host memory"
        value = args.memory_snapshot_num_steps
        yield Problem("--memory-snapshot-num-steps", value, message, remedy)
    if args.memory_recorder != "torch":
        message = "is not built yet"
        yield Problem("--memory-recorder", args.memory_recorder, message, "use torch")


def _check_offload(args: Namespace) -> Iterator[Problem]:
    needed = {
        "--use-distributed-optimizer": args.use_distributed_optimizer,
        "--use-precision-aware-optimizer": args.use_precision_aware_optimizer,
        "--bf16": args.bf16 or args.fp16,
    }
    missing = [name for name, given in needed.items() if not given]
    if missing:
        message = "Megatron offloads fp32 copies of half-precision weights, divided over ranks"
        yield Problem("--optimizer-cpu-offload", True, message, f"add {' '.join(missing)}")
    if args.use_stateless_adam:
        message = "stateless Adam has no state to keep in host memory"
        yield Problem("--optimizer-cpu-offload", True, message, "leave one of the two out")
    if not 0 < args.optimizer_offload_fraction <= 1:
        message = "is no share of the parameters"
        remedy = "above 0, at most 1"
        value = args.optimizer_offload_fraction
        yield Problem("--optimizer-offload-fraction", value, message, remedy)
