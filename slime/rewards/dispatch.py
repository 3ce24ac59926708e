"""Which grader grades a sample: `--custom-rm-path`, else `--rm-type` (or the sample's own of
both).
"""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from slime.arguments.errors import ConfigError, Problem, did_you_mean
from slime.hooks.loading import load_function
from slime.rewards.boxes import bare_truth, extract_boxed_answer
from slime.rewards.dapo import compute_score
from slime.rewards.deepscaler import get_deepscaler_rule_based_reward
from slime.rewards.errors import UngradableError
from slime.rewards.exact import exact_match
from slime.rewards.f1 import f1_score
from slime.rewards.gpqa import compute_gpqa_reward
from slime.rewards.ifbench import compute_ifbench_reward
from slime.rewards.math_answers import grade_answer, grade_answer_verl
from slime.rewards.remote import remote_rm
from slime.samples.sample import Sample

Grader = Callable[[str, Any, dict[str, Any]], Any]
"""(response, label, metadata) -> reward."""

BOXED = "boxed_"
_MOST_THREADS = 32

GRADERS: dict[str, Grader] = {
    "exact": lambda response, label, metadata: exact_match(response, label),
    "math": lambda response, label, metadata: int(grade_answer_verl(response, label)),
    "deepscaler": lambda response, label, metadata: get_deepscaler_rule_based_reward(
        response, label
    ),
    "dapo": lambda response, label, metadata: compute_score(response, label),
    "f1": lambda response, label, metadata: f1_score(response, label)[0],
    "gpqa": compute_gpqa_reward,
    "ifbench": compute_ifbench_reward,
}
_NEED_NO_LABEL = frozenset({"ifbench"})

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

    A sample whose data lack what its grader needs fails: it gets no reward (None), the status
    FAILED, and the reason in its metadata under `failure`.

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
    if sample.label is None and rm_type.removeprefix(BOXED) not in _NEED_NO_LABEL:
        raise ValueError(f"sample {sample.index} has no label to grade with: check --label-key")
    # Off the event loop, and not among its default threads: a grader may wait for computer algebra.
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(
            _grading_threads(), grader, sample.response, sample.label, sample.metadata
        )
    except UngradableError as error:
        sample.status = Sample.Status.FAILED
        sample.metadata["failure"] = f"sample {sample.index}: {error}"
        return None


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


@cache
def _grading_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="grader")


async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
