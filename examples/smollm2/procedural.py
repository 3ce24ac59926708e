"""The task: reasoning-gym's `chain_sum` of two one-digit numbers; the model gets a fifth right."""

import importlib
import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any

TASK = "chain_sum"
SIZES = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}

# Other tasks of reasoning-gym import these at the top of their modules. They exist as sources only,
# which the lock does not take, and `chain_sum` needs none of them: empty modules stand in.
ABSENT_IMPORTS = ("bfi", "cellpylib", "pycosat", "zss")


@cache
def reasoning_gym() -> Any:
    """The library, imported on first use (about a second)."""
    for name in ABSENT_IMPORTS:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = ModuleType(name)
    return importlib.import_module("reasoning_gym")


def problems(seed: int, count: int) -> list[tuple[str, str]]:
    """Up to `count` (question, answer) pairs; repeated questions are left out."""
    dataset = reasoning_gym().create_dataset(TASK, seed=seed, size=count, **SIZES)
    return list({entry["question"]: entry["answer"] for entry in dataset}.items())


def is_right(answer: str, truth: str) -> bool:
    """The library's own verdict; its partial credit (`16` contains the right `6`) is no credit."""
    score = reasoning_gym().get_score_answer_fn(TASK)
    return bool(score(answer, {"answer": truth}) == 1.0)
