"""Numbers that must hold in a run with --ci-test, and gradient norms to compare runs by."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from pathlib import Path

import torch.distributed as dist

# Of gradient norms between runs that should agree but for rounding.
_NORM_TOLERANCE = 1e-2
_ZERO = 1e-4


class CheckFailed(RuntimeError):
    """A number of a run is not what it must be."""


class CiChecks:
    """Called after every optimizer step; does nothing without the options."""

    def __init__(self, args: Namespace, role: str = "actor") -> None:
        self._args, self._role = args, role

    def after_step(self, rollout_id: int, step: int, metrics: dict[str, float]) -> None:
        """Check the step's metrics; save or compare its gradient norm.

        Raises:
            CheckFailed: names the number, what it is and what it must be.
        """
        args = self._args
        where = f"{self._role}, rollout {rollout_id}, step {step}"
        if args.ci_test and self._role == "actor":
            limit = args.ci_train_rollout_logprob_abs_diff_threshold
            self._below(metrics, "train_rollout_logprob_abs_diff", limit, where)
            if step == 0:  # the policy that trains made the old log-probs
                self._below(metrics, "ppo_kl", _ZERO, where)
            if step == 0 and rollout_id == 0 and not args.ci_disable_kl_checker:
                self._below(metrics, "kl", _ZERO, where)
        if args.ci_save_grad_norm and dist.get_rank() == 0:
            path = self._path(args.ci_save_grad_norm, rollout_id, step)
            norms = json.loads(path.read_text()) if path.is_file() else {}
            norms[where] = metrics["grad_norm"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(norms, indent=1))
        if args.ci_load_grad_norm:
            self._compare(args.ci_load_grad_norm, rollout_id, step, where, metrics["grad_norm"])

    def _compare(self, template: str, rollout_id: int, step: int, where: str, norm: float) -> None:
        path = self._path(template, rollout_id, step)
        saved = json.loads(path.read_text()) if path.is_file() else {}
        if where not in saved:
            raise CheckFailed(f"{path} has no gradient norm of {where}")
        if not math.isclose(norm, saved[where], rel_tol=_NORM_TOLERANCE, abs_tol=1e-6):
            raise CheckFailed(f"the gradient norm is {norm}, {saved[where]} in {path} ({where})")

    def _path(self, template: str, rollout_id: int, step: int) -> Path:
        return Path(template.format(role=self._role, rollout_id=rollout_id, step_id=step))

    @staticmethod
    def _below(metrics: dict[str, float], name: str, limit: float, where: str) -> None:
        if abs(metrics.get(name, 0.0)) > limit:
            raise CheckFailed(f"{name} is {metrics[name]}, at most {limit} is allowed ({where})")
