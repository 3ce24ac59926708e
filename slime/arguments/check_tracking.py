"""Checks of where metrics go: the packages must be there before hours of training are reported."""

from argparse import Namespace
from collections.abc import Iterator
from importlib.util import find_spec

from slime.arguments.errors import Problem, option

_NEEDED = {"use_wandb": "wandb", "use_tensorboard": "tensorboard"}


def check_tracking(args: Namespace) -> Iterator[Problem]:
    """Packages of the trackers that were asked for (looked up, not imported)."""
    for dest, package in _NEEDED.items():
        if getattr(args, dest) and find_spec(package) is None:
            name = option(dest)
            remedy = f"install it, or leave {name} out: metrics.jsonl is written anyway"
            yield Problem(name, True, f"the package {package} is not installed", remedy)
