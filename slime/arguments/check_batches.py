"""Checks of batches: the samples of a rollout against steps, batches and ranks."""

from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.errors import Problem
from slime.arguments.raw import RawArguments


def check_batches(args: Namespace, raw: RawArguments) -> Iterator[Problem]:
    """The samples of a rollout against steps, batches and ranks. No sample may be dropped in
    silence.
    """
    if args.rollout_batch_size is None:
        yield Problem(
            "--rollout-batch-size", None, "needed", "say how many prompts a rollout takes"
        )
        return
    if args.num_rollout is None:
        yield from _check_number_of_rollouts(args, raw)
    elif args.start_rollout_id is not None and args.start_rollout_id >= args.num_rollout:
        message = f"nothing is left to do: there are {args.num_rollout} rollouts, from 0"
        yield Problem("--start-rollout-id", args.start_rollout_id, message, "give a smaller one")
    oversampling = args.over_sampling_batch_size
    if oversampling < args.rollout_batch_size:
        message = f"is less than --rollout-batch-size {args.rollout_batch_size}"
        yield Problem("--over-sampling-batch-size", oversampling, message, "give at least as many")
    if not args.debug_rollout_only:
        yield from _check_steps(args, raw)


def _check_number_of_rollouts(args: Namespace, raw: RawArguments) -> Iterator[Problem]:
    if args.num_epoch is None:
        yield Problem("--num-rollout", None, "needed", "give --num-rollout or --num-epoch")
    elif args.num_rollout_per_epoch == 0:
        message = f"an epoch has fewer prompts than --rollout-batch-size {args.rollout_batch_size}"
        yield Problem(
            "--num-epoch", args.num_epoch, message, "give --num-rollout, or a smaller batch"
        )
    elif args.lr_decay_style != "constant" and not raw.given("lr_decay_iters"):
        message = (
            "the prompts of an epoch are counted only when the run has started: the decay has "
            "no end yet"
        )
        yield Problem(
            "--num-epoch", args.num_epoch, message, "give --lr-decay-iters, or --num-rollout"
        )


def _check_steps(args: Namespace, raw: RawArguments) -> Iterator[Problem]:
    samples, batch, steps = (
        args.samples_per_rollout,
        args.global_batch_size,
        args.num_steps_per_rollout,
    )
    product = f"{args.rollout_batch_size} prompts x {args.n_samples_per_prompt} samples = {samples}"
    gives_steps = raw.given("num_steps_per_rollout")
    if gives_steps and samples % steps:
        message = f"{product} cannot be split into {steps} equal steps"
        remedy = f"give {_divisors_near(samples, steps)} steps"
        yield Problem("--num-steps-per-rollout", steps, message, remedy)
    elif not gives_steps and samples % batch:
        message = f"{product} cannot be split into steps of {batch}"
        yield Problem(
            "--global-batch-size", batch, message, f"give {_divisors_near(samples, batch)}"
        )
    elif batch * steps != samples:
        message = f"{product} per rollout, but {batch} per step x {steps} steps = {batch * steps}"
        remedy = f"give one of --global-batch-size {samples // steps} and --num-steps-per-rollout"
        yield Problem("--global-batch-size", batch, message, remedy)
    else:
        yield from check_split(args)
    if args.use_dynamic_batch_size and args.max_tokens_per_gpu is None:
        message = "needed with --use-dynamic-batch-size"
        remedy = "say how many tokens a micro-batch may have on one rank"
        yield Problem("--max-tokens-per-gpu", None, message, remedy)


def check_split(args: Namespace) -> Iterator[Problem]:
    """A step over the data-parallel ranks."""
    batch, ranks, micro = args.global_batch_size, args.data_parallel_size, args.micro_batch_size
    if args.use_dynamic_batch_size and batch < ranks:
        message = f"is less than the {ranks} data-parallel ranks: some would have nothing to do"
        yield Problem("--global-batch-size", batch, message, "give larger batches or fewer ranks")
    elif not args.use_dynamic_batch_size and ranks and batch % (ranks * micro):
        message = (
            f"cannot be split over {ranks} data-parallel ranks with --micro-batch-size {micro}"
        )
        yield Problem("--global-batch-size", batch, message, f"give a multiple of {ranks * micro}")


def _divisors_near(samples: int, wanted: int) -> str:
    divisors = [n for n in range(1, samples + 1) if samples % n == 0]
    near = sorted(sorted(divisors, key=lambda n: abs(n - wanted))[:4])
    return " or ".join(map(str, near))
