"""All checks of a configuration in one list. They change nothing; whatever is wrong comes out
together.
"""

from argparse import Namespace

from slime.arguments.check_algorithm import (
    check_advantages,
    check_kl,
    check_modes,
    check_reward,
)
from slime.arguments.check_batches import check_batches
from slime.arguments.check_companions import check_addresses, check_companions
from slime.arguments.check_data import check_directories, check_eval_data, check_mappings
from slime.arguments.check_determinism import check_determinism
from slime.arguments.check_engines import check_engines
from slime.arguments.check_hooks import check_hook_functions
from slime.arguments.check_model import check_checkpoint, check_layout, check_replay, check_shape
from slime.arguments.check_optimizer import check_optimizer, check_release, check_snapshots
from slime.arguments.check_rollout import check_rollout
from slime.arguments.check_sizes import check_lengths, check_ranks
from slime.arguments.check_template import check_template
from slime.arguments.check_tracking import check_tracking
from slime.arguments.check_weights import check_weights
from slime.arguments.errors import Problem
from slime.arguments.facts import Facts
from slime.arguments.raw import RawArguments
from slime.arguments.roles import check_roles
from slime.arguments.scan_data import Scan


def validate(args: Namespace, raw: RawArguments, facts: Facts, train_data: Scan) -> list[Problem]:
    """Every problem of the resolved arguments."""
    problems = list(check_ranks(args))
    problems += check_engines(args, facts)
    problems += check_weights(args)
    problems += check_batches(args, raw)
    problems += check_lengths(args, raw)
    problems += check_layout(args)
    problems += check_mappings(args)
    problems += check_directories(args, raw)
    problems += check_checkpoint(args, raw)
    problems += check_shape(args, raw, facts)
    problems += check_replay(args)
    problems += train_data.problems
    problems += check_eval_data(args, raw, facts)
    problems += check_reward(args, train_data.names_grader)
    problems += check_advantages(args)
    problems += check_kl(args)
    problems += check_companions(args)
    problems += check_addresses(args)
    problems += check_modes(args, raw)
    problems += check_optimizer(args)
    problems += check_determinism(args)
    problems += check_snapshots(args)
    problems += check_release(args)
    problems += check_rollout(args)
    problems += check_template(args)
    problems += check_roles(args)
    problems += check_tracking(args)
    problems += check_hook_functions(args)
    return problems
