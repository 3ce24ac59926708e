"""Checks of the optimizer's options: what Megatron refuses by an assertion, or cannot do."""

from argparse import Namespace
from collections.abc import Iterator
from importlib.util import find_spec

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
    """PyTorch records the memory of GPUs, memray that of the host, if it is installed."""
    steps = args.memory_snapshot_num_steps
    if steps is not None and steps < 1:
        message = "is no number of rollouts to record"
        yield Problem("--memory-snapshot-num-steps", steps, message, "give at least 1")
    values = {"--memory-snapshot-num-steps": steps}
    values |= {"--record-memory-history": args.record_memory_history or None}
    wanted = [name for name, value in values.items() if value is not None]
    if args.memory_recorder == "memray":
        if not wanted:
            message = "records nothing by itself"
            remedy = f"add {' or '.join(values)}"
            yield Problem("--memory-recorder", "memray", message, remedy)
        elif find_spec("memray") is None:
            message = "the package memray is not installed"
            yield Problem("--memory-recorder", "memray", message, "install it, or leave it out")
    elif args.device == "cpu":
        remedy = "add --memory-recorder memray, for host memory"
        for name in wanted:
            yield Problem(name, values[name], "records GPU memory; there is none here", remedy)


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
