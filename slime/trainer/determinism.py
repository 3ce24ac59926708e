"""`--deterministic-mode`: the same data and seeds give the same weights, bit for bit."""

from __future__ import annotations

import os

import torch

from slime.arguments.check_determinism import SETTINGS, check_settings
from slime.arguments.errors import ConfigError


def use_deterministic_kernels() -> None:
    """For this process; call it before anything runs on a GPU, where libraries read their settings.

    An operation that has no deterministic kernel raises RuntimeError from here on.

    Raises:
        ConfigError: the environment holds a setting that is not deterministic.
    """
    problems = list(check_settings(os.environ, "the environment variable "))
    if problems:
        raise ConfigError(problems)
    for name, values in SETTINGS.items():
        os.environ.setdefault(name, values[0])
    torch.use_deterministic_algorithms(True)
