"""The reward of this example, named by `custom_rm_path: examples.smollm2.reward.last_number`."""

import argparse
import re
from typing import Protocol

from examples.smollm2.procedural import is_right

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class LabelledResponse(Protocol):
    """The two fields of `slime.samples.sample.Sample` that this reward reads."""

    response: str
    label: str | None


async def last_number(
    args: argparse.Namespace, sample: LabelledResponse, **kwargs: object
) -> float:
    """1.0 if the last number the model wrote is the answer, else 0.0."""
    numbers = NUMBER.findall(sample.response)
    return float(bool(numbers) and sample.label is not None and is_right(numbers[-1], sample.label))
