"""Checks of rollout functions of our own that need settings to go with them."""

from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.errors import Problem, option

FULLY_ASYNC = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"
FORGED = "slime.rollout.forged_rollout.generate_rollout"
DISTILLATION = "slime.rollout.on_policy_distillation.reward_func"


def check_rollout(args: Namespace) -> Iterator[Problem]:
    """Rollouts beside training, and rewards of a teacher."""
    least = args.update_weights_interval
    if args.rollout_function_path == FULLY_ASYNC and args.max_weight_lag < least:
        message = f"nothing is that fresh: the weights change every {least} rollouts"
        remedy = f"give at least {least}, or a smaller --update-weights-interval"
        yield Problem("--max-weight-lag", args.max_weight_lag, message, remedy)
    if args.rollout_function_path == FORGED and args.load_forge_rollout_data is None:
        remedy = "give a JSON file of lengths and rewards"
        yield Problem("--load-forge-rollout-data", None, "needed to forge rollouts", remedy)
    if args.custom_rm_path == DISTILLATION:
        if args.rm_url is None:
            remedy = "give the address of the teacher's engine: http://host:port/generate"
            yield Problem("--rm-url", None, "needed with the teacher's reward", remedy)
        if args.rollout_temperature != 1.0:
            message = "a teacher's engine reports log-probabilities at temperature 1 only"
            yield Problem("--rollout-temperature", args.rollout_temperature, message, "give 1.0")


def check_entry(args: Namespace, overlapped: bool) -> Iterator[Problem]:
    """What only one of the entry points can do; `overlapped`: it is `slime.train_async`."""
    if overlapped and args.colocate:
        message = "generating while training needs GPUs for each of the two"
        yield Problem("--colocate", True, message, "leave it out, or run slime.train")
    for dest in ("offload_train", "offload_rollout", "release_train"):
        if overlapped and not args.colocate and getattr(args, dest):
            message = "nothing rests while the next rollout is generated"
            yield Problem(option(dest), True, message, "leave it out, or run slime.train")
    if not overlapped and args.rollout_function_path == FULLY_ASYNC:
        message = "generates while training"
        yield Problem("--rollout-function-path", FULLY_ASYNC, message, "run slime.train_async")
