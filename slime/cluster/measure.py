"""Metrics of a rollout and of an evaluation, which the user's functions may add to or replace.

A function at ``--custom-rollout-log-function-path`` or ``--custom-eval-rollout-log-function-path``
may write into the ``metrics`` it gets. If it returns a true value, the standard ones are left out.
"""

from argparse import Namespace
from typing import Any

from slime.hooks import load_function
from slime.metrics import eval_metrics, rollout_metrics
from slime.samples.sample import Sample


def measure_rollout(
    args: Namespace,
    rollout_id: int,
    samples: list[Sample],
    metrics: dict[str, Any],
    seconds: float,
    trainer_version: int,
) -> dict[str, Any]:
    """``metrics`` of the rollout function with the standard ones; ``seconds`` it took to generate.

    ``trainer_version`` is the weight version that will consume the samples, for the staleness.
    """
    path = args.custom_rollout_log_function_path
    if path and load_function(path)(rollout_id, args, samples, metrics, seconds):
        return metrics
    return metrics | rollout_metrics(args, samples, trainer_version=trainer_version)


def measure_evaluation(
    args: Namespace, rollout_id: int, data: dict[str, dict[str, Any]], metrics: dict[str, Any]
) -> dict[str, Any]:
    """``metrics`` of the eval function with the standard ones of every evaluation set."""
    path = args.custom_eval_rollout_log_function_path
    if path and load_function(path)(rollout_id, args, data, metrics):
        return metrics
    for name, part in data.items():
        metrics |= eval_metrics(name, part)
    return metrics
