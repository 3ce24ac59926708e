"""The check of all functions given by path, before any process starts."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from slime.arguments.errors import Problem
from slime.hooks.contracts import CONTRACTS, Contract
from slime.hooks.loading import load_function

# The defaults: ours, kept right by our tests, and importing them would cost a dry run its second.
_OWN_DEFAULTS = frozenset(
    {
        "slime.rollout.sglang_rollout.generate_rollout",
        "slime.rollout.data_source.RolloutDataSourceWithBuffer",
    }
)


def check_hooks(args: Namespace) -> list[Problem]:
    """Import every function given by path and check that it can be called as its option calls it.

    A grader under `--group-rm` gets the samples of a group in place of one; the number of its
    arguments stays.

    Returns:
        A problem per wrong path: what failed in its import, or the call expected and the signature
        found.
    """
    return [
        problem
        for option, path, contract in _given(args)
        for problem in _check(option, path, contract)
    ]


def _given(args: Namespace) -> Iterator[tuple[str, str, Contract]]:
    """Every path that is set, with the option as the user writes it; the same path once per
    contract.
    """
    seen: set[tuple[str, Contract]] = set()
    for dest, contract in CONTRACTS.items():
        value = getattr(args, dest, None)
        for path in value if isinstance(value, list) else [value]:
            if path and path not in _OWN_DEFAULTS and (path, contract) not in seen:
                seen.add((path, contract))
                yield "--" + dest.replace("_", "-"), path, contract
    for dataset in getattr(args, "eval_datasets", None) or ():
        for name in ("custom_rm_path", "custom_generate_function_path"):
            path = getattr(dataset, name, None)
            if path and (path, CONTRACTS[name]) not in seen:
                seen.add((path, CONTRACTS[name]))
                yield f"evaluation data {dataset.name}: {name}", path, CONTRACTS[name]


def _check(option: str, path: str, contract: Contract) -> Iterator[Problem]:
    remedy = f"give the import path of a function that is called as {contract}"
    try:
        function: Any = load_function(path)
    except ImportError as error:
        yield Problem(option, path, f"cannot be imported: {error}", remedy)
    except (Exception, SystemExit) as error:  # a module may do anything while it is imported
        message = f"raises {type(error).__name__} while it is imported: {error}"
        yield Problem(option, path, message, "repair the module")
    else:
        violation = contract.violation(function)
        if violation is not None:
            yield Problem(option, path, violation, remedy)
