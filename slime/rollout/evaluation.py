"""Evaluation: every evaluation set with its own settings, on the engines' present weights."""

import asyncio
import copy
from argparse import Namespace
from typing import Any

from slime.arguments.eval_config import EvalDatasetConfig
from slime.data.prompts import Dataset
from slime.rollout.errors import RolloutError
from slime.rollout.generate_state import GenerateState
from slime.rollout.generation import generate_and_rm_group
from slime.samples.groups import flatten
from slime.samples.sample import Sample

EvalResults = dict[str, dict[str, list[Any]]]


async def eval_rollout(args: Namespace, rollout_id: int) -> tuple[EvalResults, list[list[Sample]]]:
    """All evaluation sets at once: per set `rewards`, `truncated` and `samples`; nothing is left
    over.

    Raises:
        RolloutError: a sample could not be generated; an accuracy over fewer samples would be
        another number.
    """
    sets: list[EvalDatasetConfig] = args.eval_datasets
    results = await asyncio.gather(*(_eval_dataset(args, dataset) for dataset in sets))
    return {dataset.name: result for dataset, result in zip(sets, results, strict=True)}, []


async def _eval_dataset(args: Namespace, dataset: EvalDatasetConfig) -> dict[str, list[Any]]:
    params = eval_sampling_params(args, dataset)
    groups = make_groups(dataset, _prompts(args, dataset))
    done = await asyncio.gather(
        *(generate_and_rm_group(args, group, dict(params), evaluation=True) for group in groups)
    )
    samples = flatten(done)
    for sample in samples:
        if sample.status == Sample.Status.FAILED:
            reason = sample.metadata.get("failure")
            raise RolloutError(f"evaluation {dataset.name}, sample {sample.index}: {reason}")
    key = args.eval_reward_key or args.reward_key
    return {
        "rewards": [
            s.reward[key] if key and isinstance(s.reward, dict) else s.reward for s in samples
        ],
        "truncated": [s.status == Sample.Status.TRUNCATED for s in samples],
        "samples": samples,
    }


def eval_sampling_params(args: Namespace, dataset: EvalDatasetConfig) -> dict[str, Any]:
    """The rollout's parameters with those of the data set laid over them."""
    own = {
        "temperature": dataset.temperature,
        "top_p": dataset.top_p,
        "top_k": dataset.top_k,
        "max_new_tokens": dataset.max_response_len,
        "min_new_tokens": dataset.min_new_tokens,
        "stop": dataset.stop,
        "stop_token_ids": dataset.stop_token_ids,
        "skip_special_tokens": dataset.skip_special_tokens,
        "repetition_penalty": dataset.repetition_penalty,
        "no_stop_trim": dataset.no_stop_trim,
    }
    given = {name: value for name, value in own.items() if value is not None}
    return {**GenerateState(args).sampling_params, **given}


def make_groups(dataset: EvalDatasetConfig, prompts: list[Sample]) -> list[list[Sample]]:
    """`n_samples_per_eval_prompt` copies of each prompt, which carry the set's own reward and
    generate paths."""
    groups = []
    count = dataset.n_samples_per_eval_prompt or 1
    for group_index, prompt in enumerate(prompts):
        group = []
        for repeat in range(count):
            sample = copy.deepcopy(prompt)
            sample.group_index = group_index
            sample.index = group_index * count + repeat
            sample.metadata = dataset.inject_metadata(sample.metadata)
            if dataset.rm_type:
                sample.metadata.setdefault("rm_type", dataset.rm_type)
            sample.custom_rm_path = dataset.custom_rm_path
            sample.generate_function_path = dataset.custom_generate_function_path
            group.append(sample)
        groups.append(group)
    return groups


def _prompts(args: Namespace, dataset: EvalDatasetConfig) -> list[Sample]:
    state = GenerateState(args)
    key = (dataset.cache_key, args.eval_max_prompt_len)
    if key not in state.eval_prompts:
        state.eval_prompts[key] = Dataset(
            dataset.path,
            state.tokenizer,
            None,
            args.eval_max_prompt_len,
            prompt_key=dataset.input_key or "input",
            label_key=dataset.label_key,
            multimodal_keys=dataset.multimodal_keys,
            metadata_key=dataset.metadata_key or "metadata",
            tool_key=dataset.tool_key,
            apply_chat_template=bool(dataset.apply_chat_template),
            apply_chat_template_kwargs=dataset.apply_chat_template_kwargs,
        ).samples
    return state.eval_prompts[key]
