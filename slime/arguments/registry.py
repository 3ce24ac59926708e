"""All options of slime in the order of `--help`."""

from argparse import Namespace
from functools import cache
from typing import Any

from slime.arguments import (
    algorithm,
    cluster,
    data,
    debug,
    engines,
    evaluation,
    megatron_checkpoint,
    megatron_logging,
    megatron_model,
    megatron_moe,
    megatron_optimizer,
    megatron_parallel,
    reward,
    rollout,
    run,
    tracking,
    train,
    weight_update,
)
from slime.arguments.flag import Flag, FlagGroup

GROUPS: tuple[FlagGroup, ...] = (
    run.GROUP,
    cluster.GROUP,
    data.GROUP,
    rollout.GROUP,
    engines.GROUP,
    reward.GROUP,
    algorithm.GROUP,
    train.GROUP,
    weight_update.GROUP,
    evaluation.GROUP,
    debug.GROUP,
    tracking.GROUP,
    megatron_checkpoint.GROUP,
    megatron_optimizer.OPTIMIZER,
    megatron_optimizer.PRECISION,
    megatron_parallel.GROUP,
    megatron_model.GROUP,
    megatron_moe.GROUP,
    megatron_logging.GROUP,
)


@cache
def all_flags() -> tuple[Flag, ...]:
    """Every flag of every group."""
    return tuple(flag for group in GROUPS for flag in group.flags)


def given_options(args: Namespace) -> dict[str, Any]:
    """Attribute -> value of what was given and is not the default."""
    return {
        flag.dest: value
        for flag in all_flags()
        if flag.dest in args.raw_options and (value := getattr(args, flag.dest)) != flag.default
    }


@cache
def flags_by_key() -> dict[str, tuple[Flag, bool]]:
    """YAML key -> (flag, inverted): a flag's own name, or its attribute.

    `disable_grpo_std_normalization: true` says the opposite of `grpo_std_normalization: true`;
    both are keys.
    """
    keys = {flag.key: (flag, flag.negates) for flag in all_flags()}
    keys.update({flag.dest: (flag, False) for flag in all_flags() if flag.dest != flag.key})
    return keys
