"""Generation and reward of one sample and of one group."""

import asyncio
import inspect
import math
from argparse import Namespace
from typing import Any

from slime.hooks.loading import load_function
from slime.hooks.sample_hooks import apply_rollout_sample_hooks
from slime.rewards.dispatch import async_rm, batched_async_rm
from slime.rollout import engine_requests
from slime.rollout.errors import RolloutError
from slime.rollout.generate_state import GenerateState
from slime.rollout.http_client import post
from slime.rollout.sampling import is_seeded, max_context_len, remaining_new_tokens, seeded
from slime.rollout.tokenizer import encode_prompt
from slime.samples.groups import flatten
from slime.samples.packed import put, stored
from slime.samples.sample import Sample

Status = Sample.Status


async def generate(args: Namespace, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    """Generate a response, or the rest of one that was aborted, and put it on the sample.

    The sample ends as COMPLETED, TRUNCATED, ABORTED (continue it later), or FAILED with
    `metadata["failure"]` when the engines gave no answer.
    """
    sampling_params = seeded(args, sample, sampling_params)
    await _generate_together(args, [sample], sampling_params, max_context_len(args))
    return sample


async def generate_and_rm(
    args: Namespace,
    sample: Sample | list[Sample],
    sampling_params: dict[str, Any],
    evaluation: bool = False,
) -> Sample | list[Sample]:
    """Generate by the sample's own function, `--custom-generate-function-path` or `generate`, then
    grade.

    A custom function may return several samples (its rollout fanned out); so may this. What is
    already generated (a list, or a sample with a final status) only gets the reward it lacks.
    """
    if isinstance(sample, list) or sample.status not in (Status.PENDING, Status.ABORTED):
        return await _grade(args, sample)
    state = GenerateState(args)
    async with state.semaphore:
        if state.aborted:
            sample.status = Status.ABORTED
            return sample
        generated = await _generate_one(args, sample, sampling_params, evaluation)
    return await _hook_and_grade(args, generated)


async def generate_and_rm_group(
    args: Namespace,
    group: list[Sample],
    sampling_params: dict[str, Any],
    evaluation: bool = False,
) -> list[Sample] | list[list[Sample]]:
    """Generate and grade all samples of a prompt.

    Where nothing is custom the group is one request: the prompt travels, is tokenized and is cached
    once.
    """
    state = GenerateState(args)
    if state.aborted:
        return group
    if _can_travel_together(args, group):
        async with state.semaphore:
            if state.aborted:
                return group
            context_len = max_context_len(args, evaluation)
            await _generate_together(args, group, sampling_params, context_len)
        work = [_hook_and_grade(args, sample) for sample in group]
    else:
        work = [generate_and_rm(args, s, dict(sampling_params), evaluation) for s in group]
    results = await asyncio.gather(*work)
    samples = flatten(results)
    if args.group_rm and not any(sample.status == Status.ABORTED for sample in samples):
        await _give_rewards(args, samples)
    return list(results)


async def _generate_one(
    args: Namespace, sample: Sample, sampling_params: dict[str, Any], evaluation: bool
) -> Sample | list[Sample]:
    path = sample.generate_function_path or args.custom_generate_function_path
    sampling_params = seeded(args, sample, sampling_params)
    if not path:
        context_len = max_context_len(args, evaluation)
        await _generate_together(args, [sample], sampling_params, context_len)
        return sample
    function = load_function(path)
    options = {}
    if "evaluation" in inspect.signature(function).parameters:
        options["evaluation"] = evaluation
    with GenerateState(args).progress.waiting_for(f"sample {sample.index} of {path}"):
        generated = await function(args, sample, sampling_params, **options)
    parts = generated if isinstance(generated, list) else [generated]
    if not parts or not all(isinstance(part, Sample) for part in parts):
        raise RolloutError(
            f"{path} returned {generated!r} for sample {sample.index}; a sample or a list of "
            "samples is needed"
        )
    return generated


async def _hook_and_grade(args: Namespace, generated: Sample | list[Sample]) -> Any:
    if any(sample.status == Status.ABORTED for sample in flatten(generated)):
        return generated
    return await _grade(args, await apply_rollout_sample_hooks(args, generated))


async def _grade(args: Namespace, generated: Sample | list[Sample]) -> Any:
    """Rewards for what has none yet; with `--group-rm` the group gets them later, together."""
    if args.group_rm:
        return generated
    if isinstance(generated, list):
        await _give_rewards(args, flatten(generated))
    elif generated.reward is None and generated.status != Status.FAILED:
        with GenerateState(args).progress.waiting_for(_reward_of(args, generated)):
            reward = await async_rm(args, generated)
        generated.reward = _checked(args, generated, reward)
    return generated


async def _give_rewards(args: Namespace, samples: list[Sample]) -> None:
    ungraded = [s for s in samples if s.reward is None and s.status != Status.FAILED]
    if not ungraded:
        return
    with GenerateState(args).progress.waiting_for(_reward_of(args, ungraded[0])):
        rewards = await batched_async_rm(args, ungraded)
    for sample, reward in zip(ungraded, rewards, strict=True):
        sample.reward = _checked(args, sample, reward)


def _reward_of(args: Namespace, sample: Sample) -> str:
    return f"the reward of sample {sample.index} by {_grader_of(args, sample)}"


def _grader_of(args: Namespace, sample: Sample) -> str:
    return str(sample.custom_rm_path or args.custom_rm_path or args.rm_type)


def _checked(args: Namespace, sample: Sample, reward: Any) -> Any:
    """`reward`, unless it says nothing: it would only be found out as a loss that is not finite."""
    numbers = reward.values() if isinstance(reward, dict) else [reward]
    if reward is None or any(isinstance(n, float) and not math.isfinite(n) for n in numbers):
        raise RolloutError(
            f"{_grader_of(args, sample)} gave sample {sample.index} the reward {reward!r}; a "
            "finite number is needed"
        )
    return reward


def _can_travel_together(args: Namespace, group: list[Sample]) -> bool:
    """Several untouched samples of one prompt, generated by the default function."""
    first = group[0]
    return (
        len(group) > 1
        and not args.custom_generate_function_path
        and not is_seeded(args)
        and all(
            sample.status == Status.PENDING
            and sample.response_length == 0
            and not sample.generate_function_path
            and not sample.multimodal_inputs
            and not sample.session_id
            and sample.prompt == first.prompt
            and sample.tokens == first.tokens
            for sample in group
        )
    )


async def _generate_together(
    args: Namespace, samples: list[Sample], sampling_params: dict[str, Any], context_len: int
) -> None:
    """One request for samples that have the same tokens so far; every one gets its status set."""
    first = samples[0]
    if not len(stored(first, "tokens")):
        prompt_ids = encode_prompt(GenerateState(args).tokenizer, first)
        for sample in samples:
            put(sample, "tokens", prompt_ids)
    engine_requests.mask_earlier_tokens(args, first)
    new_tokens = remaining_new_tokens(first, sampling_params.get("max_new_tokens"), context_len)
    if new_tokens == 0:
        for sample in samples:
            sample.status = Status.TRUNCATED
        return
    params = {**sampling_params, "max_new_tokens": new_tokens}
    alone = len(samples) == 1
    prompts = [stored(sample, "tokens") for sample in samples]
    input_ids = prompts[0] if alone else prompts
    try:
        engine_requests.check_vocabulary(args, first)
        state = GenerateState(args)
        with state.engines_busy, state.progress.waiting_for(f"the response of {first.index}"):
            answers = await post(
                engine_requests.get_model_url(args, "default"),
                engine_requests.payload(args, input_ids, params),
                headers=engine_requests.headers(first),
            )
    except RolloutError as error:
        for sample in samples:
            engine_requests.fail(sample, error)
        return
    for sample, answer in zip(samples, [answers] if alone else answers, strict=True):
        engine_requests.record(args, sample, answer)
