"""The reward of CPU twins: the share of places that are right, and a little for letters.

A random model is never right; what it gets for letters still tells one answer from another.
"""

from __future__ import annotations

from argparse import Namespace

from slime.samples.sample import Sample


def grade(response: str, label: str) -> float:
    """1 for the exact answer; a random text gets up to 0.5."""
    text = response.strip()
    if text == label:
        return 1.0
    places = sum(a == b for a, b in zip(text, label, strict=False))
    letters = sum(char.isalpha() for char in text)
    return (0.25 * places + 0.25 * letters) / max(len(text), len(label), 1)


async def score(
    args: Namespace, sample: Sample | list[Sample], **kwargs: object
) -> float | list[float]:
    """The reward for `--custom-rm-path`; samples that belong together come as a list."""
    if isinstance(sample, list):
        return [grade(one.response, one.label or "") for one in sample]
    return grade(sample.response, sample.label or "")
