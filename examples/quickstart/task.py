"""The two tasks of the quick start and their exact verifier: pure Python, no dependencies.

`reverse abcd=` -> `dcba` (four letters; the fast run) and `sort 604182=` -> `012468` (six digits;
the longer one). Whether a question is held out depends on its text alone, so that the warm start,
the training prompts and the evaluation prompts agree on the split without sharing a list.
"""

import argparse
import random
import string
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

HELD_OUT_SHARE = 16  # one question in sixteen is never trained on


@dataclass(frozen=True)
class Question:
    """What the user asks, and the only answer that counts."""

    text: str
    answer: str


def reverse_letters(rng: random.Random, length: int = 4) -> Question:
    letters = "".join(rng.choice(string.ascii_lowercase) for _ in range(length))
    return Question(f"reverse {letters}=", letters[::-1])


def sort_digits(rng: random.Random, length: int = 6) -> Question:
    digits = "".join(rng.choice(string.digits) for _ in range(length))
    return Question(f"sort {digits}=", "".join(sorted(digits)))


TASKS: dict[str, Callable[[random.Random], Question]] = {
    "reverse": reverse_letters,
    "sort": sort_digits,
}


def is_held_out(question: Question) -> bool:
    """True for the sixteenth of all questions kept for evaluation."""
    return zlib.crc32(question.text.encode()) % HELD_OUT_SHARE == 0


def questions(task: str, rng: random.Random, held_out: bool) -> Iterator[Question]:
    """Endless random questions of one side of the split (repeats possible)."""
    make = TASKS[task]
    while True:
        question = make(rng)
        if is_held_out(question) == held_out:
            yield question


def is_correct(response: str, answer: str) -> bool:
    return response.strip() == answer


class LabelledResponse(Protocol):
    """The two fields of `slime.samples.sample.Sample` that the verifier reads."""

    response: str
    label: str | None


async def exact_match(
    args: argparse.Namespace, sample: LabelledResponse, **kwargs: object
) -> float:
    """Reward for `--custom-rm-path`: 1.0 for the exact answer, else 0.0."""
    return float(sample.label is not None and is_correct(sample.response, sample.label))
