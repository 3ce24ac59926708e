"""Which grader grades a sample: `--custom-rm-path`, else `--rm-type` (or the sample's own of
both).
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from slime.arguments.errors import ConfigError, Problem, did_you_mean
from slime.hooks.loading import load_function
from slime.rewards.boxes import bare_truth, extract_boxed_answer
from slime.rewards.dapo import compute_score
from slime.rewards.deepscaler import get_deepscaler_rule_based_reward
from slime.rewards.exact import exact_match
from slime.rewards.f1 import f1_score
from slime.rewards.gpqa import compute_gpqa_reward
from slime.rewards.math_answers import grade_answer, grade_answer_verl
from slime.rewards.remote import remote_rm
from slime.samples.sample import Sample

Grader = Callable[[str, Any, dict[str, Any]], Any]
"""(response, label, metadata) -> reward."""

BOXED = "boxed_"

GRADERS: dict[str, Grader] = {
    "exact": lambda response, label, metadata: exact_match(response, label),
    "math": lambda response, label, metadata: int(grade_answer_verl(response, label)),
    "deepscaler": lambda response, label, metadata: get_deepscaler_rule_based_reward(
        response, label
    ),
    "dapo": lambda response, label, metadata: compute_score(response, label),
    "f1": lambda response, label, metadata: f1_score(response, label)[0],
    "gpqa": compute_gpqa_reward,
}

# With the prefix `boxed_` a grader sees the content of the last box. Those that look for a form of
# their own in the response grade that content as the bare answer it is.
_BARE_GRADERS: dict[str, Grader] = GRADERS | {
    "math": lambda answer, label, metadata: int(grade_answer(answer, bare_truth(label))),
    "deepscaler": lambda answer, label, metadata: int(grade_answer(answer, bare_truth(label))),
    "dapo": lambda answer, label, metadata: compute_score(
        f"Answer: {' '.join(answer.split())}", label
    ),
}


async def async_rm(args: Any, sample: Sample, **kwargs: Any) -> Any:
    """The reward of one sample: a number, or a dict (`dapo`, custom graders).

    Raises:
        ConfigError: No grader is configured, or `--rm-type` names none.
        ValueError: The sample has no label.
    """
    if path := sample.custom_rm_path or args.custom_rm_path:
        return await _maybe_await(load_function(path)(args, sample, **kwargs))
    rm_type = (sample.metadata.get("rm_type") or args.rm_type or "").strip()
    if rm_type == "remote_rm":
        return await remote_rm(sample.metadata.get("rm_url") or args.rm_url, sample)
    grader = find_grader(rm_type)
    if sample.label is None:
        raise ValueError(f"sample {sample.index} has no label to grade with: check --label-key")
    # Graders are bounded, but a long response may still take milliseconds: not on the event loop.
    return await asyncio.to_thread(grader, sample.response, sample.label, sample.metadata)


async def batched_async_rm(args: Any, samples: list[Sample], **kwargs: Any) -> list[Any]:
    """The rewards of several samples, in order.

    A function at `--custom-rm-path` gets the whole list at once (unless a sample names its own).

    Raises:
        TypeError: The custom function did not return one reward per sample.
    """
    if args.custom_rm_path and not any(sample.custom_rm_path for sample in samples):
        rewards = await _maybe_await(load_function(args.custom_rm_path)(args, samples, **kwargs))
        if not isinstance(rewards, list) or len(rewards) != len(samples):
            raise TypeError(
                f"--custom-rm-path = {args.custom_rm_path}: a list of {len(samples)} rewards is "
                f"needed, it returned {rewards!r}"
            )
        return rewards
    return list(await asyncio.gather(*(async_rm(args, sample, **kwargs) for sample in samples)))


def find_grader(rm_type: str) -> Grader:
    """The grader of a `--rm-type`.

    Raises:
        ConfigError: There is none of that name.
    """
    name = rm_type.removeprefix(BOXED)
    if name not in GRADERS:
        known = ", ".join(GRADERS)
        remedy = (
            did_you_mean(name, GRADERS) or f"known: {known}, each also as {BOXED}..., remote_rm"
        )
        message = "there is no such grader" if rm_type else "no grader is configured"
        raise ConfigError([Problem("--rm-type", rm_type or None, message, remedy)])
    if not rm_type.startswith(BOXED):
        return GRADERS[name]
    bare = _BARE_GRADERS[name]
    return lambda response, label, metadata: bare(
        extract_boxed_answer(response) or "", label, metadata
    )


async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
