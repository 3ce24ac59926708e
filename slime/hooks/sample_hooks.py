"""Hooks of `--rollout-sample-hook-path`: they see every sample after its generation, before its
reward.
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from slime.hooks.loading import load_function
from slime.samples.sample import Sample

# A context variable, not a global: concurrent rollouts and an evaluation beside them each see their
# own.
_current_rollout_id: ContextVar[int | None] = ContextVar("current_rollout_id", default=None)


def set_current_rollout_id(rollout_id: int | None) -> None:
    """Name the rollout of the present task and of the tasks it starts from now on."""
    _current_rollout_id.set(rollout_id)


def current_rollout_id() -> int | None:
    """The rollout of the present task; None outside of rollouts."""
    return _current_rollout_id.get()


async def apply_rollout_sample_hooks(args: Any, value: Any, **kwargs: Any) -> Any:
    """Run all hooks, in the order given, over every sample of `value`.

    Args:
        args: `rollout_sample_hook_path`, a list of import paths; with none this returns `value`
            itself.
        value: A sample or (nested) lists of samples; the result has the same shape.
        **kwargs: Offered to the hooks, with `rollout_id` of the present task; a hook `hook(args,
        sample, ...)`
            gets those it declares, or all of them with a `**kwargs` of its own. It may be a
            coroutine function.

    Raises:
        TypeError: A hook returned something that is neither a sample (which takes the place of the
            old one) nor None (the old one stays).
    """
    paths = args.rollout_sample_hook_path
    if not paths:
        return value
    offered = {"rollout_id": current_rollout_id()} | kwargs
    hooks = [(path, load_function(path)) for path in paths]
    return await _apply(
        args, value, [(path, hook, _accepted(hook, offered)) for path, hook in hooks]
    )


async def _apply(
    args: Any, value: Any, hooks: list[tuple[str, Callable[..., Any], dict[str, Any]]]
) -> Any:
    if isinstance(value, list):
        return [await _apply(args, item, hooks) for item in value]
    sample = value
    for path, hook, accepted in hooks:
        result = hook(args, sample, **accepted)
        if inspect.isawaitable(result):
            result = await result
        if result is None:
            continue
        if not isinstance(result, Sample):
            raise TypeError(f"the hook {path} returned {type(result).__name__}, no Sample or None")
        sample = result
    return sample


def _accepted(hook: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """The part of `offered` that the hook declares beyond its two positional arguments."""
    parameters = inspect.signature(hook).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return offered
    by_position = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    taken = sum(p.kind is p.POSITIONAL_ONLY for p in parameters.values())
    declared = {p.name for p in by_position[max(0, 2 - taken) :]}
    declared |= {p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
    return {name: value for name, value in offered.items() if name in declared}
