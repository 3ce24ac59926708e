"""Adam that forgets: each step is the first step of a new Adam, so no moments are kept.

The first step of Adam (https://arxiv.org/abs/1412.6980) has the moments m = (1 - b1) g and
v = (1 - b2) g^2; with bias correction the update is lr * g / (|g| + eps), nearly lr * sign(g).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from megatron.core.optimizer import MegatronOptimizer


class StatelessAdam(torch.optim.Optimizer):
    """Equal to an Adam (AdamW with ``adam_w_mode``) rebuilt before each step.

    Args:
        params, lr, betas, eps, weight_decay, bias_correction, maximize: as of torch's Adam.
        amsgrad: changes nothing, since the largest second moment so far is the only one.
        adam_w_mode: decay the weights themselves, not through the gradient.
        use_decoupled_grad: take ``param.decoupled_grad`` in the place of ``param.grad``.
        master_weights: update a float32 copy of parameters in lower precision; the only state.
        set_grad_none: what :meth:`zero_grad` does by default.
        **_: other options of fused optimizers, of no meaning without moments.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        bias_correction: bool = True,
        adam_w_mode: bool = True,
        maximize: bool = False,
        use_decoupled_grad: bool = False,
        master_weights: bool = False,
        set_grad_none: bool | None = None,
        **_: Any,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "bias_correction": bias_correction,
            "maximize": maximize,
        }
        super().__init__(params, defaults)
        self._decoupled_decay = adam_w_mode
        self._grad = "decoupled_grad" if use_decoupled_grad else "grad"
        self._master_weights = master_weights
        self._set_grad_none = True if set_grad_none is None else set_grad_none

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """As torch's, and for ``decoupled_grad`` too."""
        set_to_none = self._set_grad_none if set_to_none is None else set_to_none
        super().zero_grad(set_to_none)
        for param in (p for group in self.param_groups for p in group["params"]):
            gradient = getattr(param, "decoupled_grad", None)
            if gradient is not None:
                param.decoupled_grad = None if set_to_none else gradient.zero_()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Learning rates and the like, and float32 copies; moments, of any Adam, are left out."""
        state = {
            key: {"master_param": value["master_param"]}
            for key, value in state_dict["state"].items()
            if self._master_weights and isinstance(value, dict) and "master_param" in value
        }
        super().load_state_dict({**state_dict, "state": state})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient. Returns what ``closure`` does."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                gradient = getattr(param, self._grad, None)
                if gradient is not None:
                    self._update(group, param, gradient)
        return loss

    def _update(self, group: dict[str, Any], param: torch.Tensor, gradient: torch.Tensor) -> None:
        weight = self._weight(param)
        gradient = gradient.to(weight.dtype)
        gradient = -gradient if group["maximize"] else gradient
        if self._decoupled_decay:
            weight.mul_(1 - group["lr"] * group["weight_decay"])
        elif group["weight_decay"] != 0:
            gradient = gradient + group["weight_decay"] * weight
        first, second = 1.0, 1.0  # corrected moments: g and g^2
        if not group["bias_correction"]:
            first, second = 1 - group["betas"][0], math.sqrt(1 - group["betas"][1])
        denominator = gradient.abs().mul_(second).add_(group["eps"])
        weight.addcdiv_(gradient, denominator, value=-group["lr"] * first)
        if weight is not param:
            param.copy_(weight)

    def _weight(self, param: torch.Tensor) -> torch.Tensor:
        if not self._master_weights or param.dtype == torch.float32:
            return param
        state = self.state[param]
        if "master_param" not in state:
            state["master_param"] = param.detach().float()
        return state["master_param"]


def make_stateless(optimizer: MegatronOptimizer) -> None:
    """Put a :class:`StatelessAdam` into the place of each Adam that Megatron has built."""
    for part in optimizer.chained_optimizers:
        inner = part.optimizer
        if inner is None:  # nothing to train on this rank
            continue
        aware = part.config.use_precision_aware_optimizer_no_fp8_or_ds_fp8
        adam = StatelessAdam(
            [torch.nn.Parameter(torch.empty(0))],  # the real ones may be views, which are refused
            lr=part.config.lr,
            betas=(part.config.adam_beta1, part.config.adam_beta2),
            eps=part.config.adam_eps,
            weight_decay=part.config.weight_decay,
            adam_w_mode=part.config.decoupled_weight_decay,
            use_decoupled_grad=aware,
            master_weights=aware,
        )
        adam.param_groups = [{**adam.defaults, **group} for group in inner.param_groups]
        part.optimizer = adam
        part.init_state_fn = lambda *_: None


@contextmanager
def zero_moments(optimizer: MegatronOptimizer | None) -> Iterator[None]:
    """Inside, a stateless Adam has moments, all zero: the distributed optimizer's checkpoints name
    them.
    """
    parts = optimizer.chained_optimizers if optimizer is not None else []
    inner = [p.optimizer for p in parts if p.config.use_distributed_optimizer]
    stateless = [i for i in inner if isinstance(i, StatelessAdam)]
    for adam in stateless:
        for param in (p for group in adam.param_groups for p in group["params"]):
            adam.state[param].update(
                step=torch.tensor(0.0),
                exp_avg=torch.zeros_like(param),
                exp_avg_sq=torch.zeros_like(param),
            )
    try:
        yield
    finally:
        for adam in stateless:
            adam.load_state_dict(adam.state_dict())
