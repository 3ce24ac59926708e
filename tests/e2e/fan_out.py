"""A generate function whose prompt gives two samples: an answer, and one that goes on from it."""

from __future__ import annotations

from argparse import Namespace
from copy import deepcopy
from typing import Any

from slime.rollout.sglang_rollout import generate as generate_answer
from slime.samples.sample import Sample


async def generate(
    args: Namespace, sample: Sample, sampling_params: dict[str, Any]
) -> list[Sample]:
    """For --custom-generate-function-path: the second sample's first half does not train."""
    first = await generate_answer(args, deepcopy(sample), dict(sampling_params))
    if first.status != Sample.Status.COMPLETED or not first.response_length:
        return [first]
    second = deepcopy(first)
    half = second.response_length // 2
    second.loss_mask = [0] * half + [1] * (second.response_length - half)
    return [first, second]
