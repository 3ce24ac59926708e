"""Grading of mathematical answers, from the boxed answer of a solution to a verdict.

First exactly, in microseconds; what that leaves undecided goes to a pool of worker processes, each
answer under a limit of time and memory. Whatever the text holds, nothing is executed here or there,
and any thread may grade.
"""

from slime.rewards.boxes import (
    bare_truth,
    extract_answer,
    extract_boxed_answer,
    last_boxed_only_string,
    remove_boxed,
)
from slime.rewards.comparison import LONGEST_ANSWER, compare
from slime.rewards.notation import drop_layout
from slime.rewards.symbolic_pool import is_equal

__all__ = [
    "extract_answer",
    "extract_boxed_answer",
    "grade_answer_mathd",
    "grade_answer_sympy",
    "grade_answer_verl",
    "last_boxed_only_string",
    "mathd_normalize_answer",
    "remove_boxed",
]


def mathd_normalize_answer(answer: str | None) -> str | None:
    r"""One spelling for answers that differ in layout only (spaces, dollar signs, `\left`,
    `\dfrac`, units).
    """
    return None if answer is None else drop_layout(answer)


def grade_answer_mathd(given_answer: str, ground_truth: str) -> bool:
    """Whether both have one normal form."""
    given, truth = str(given_answer), str(ground_truth)
    if max(len(given), len(truth)) > LONGEST_ANSWER:
        return False
    given = drop_layout(given)
    return bool(given) and given == drop_layout(truth)


def grade_answer_sympy(given_answer: str, ground_truth: str) -> bool:
    """Whether both are equal as mathematics: numbers exactly, formulas as functions, tuples, sets,
    intervals and matrices by part, the rest by computer algebra in another process.
    """
    given, truth = str(given_answer), str(ground_truth)
    verdict = compare(given, truth)
    return is_equal(given, truth) if verdict is None else verdict


def grade_answer(given_answer: str, ground_truth: str) -> bool:
    """Whether a bare answer is right, by normal form or by value."""
    return grade_answer_mathd(given_answer, ground_truth) or grade_answer_sympy(
        given_answer, ground_truth
    )


def grade_answer_verl(solution_str: str, ground_truth: str | int | float) -> bool:
    """Whether the boxed answer of a solution is right; a solution without a box is wrong.

    Args:
        solution_str: The whole response.
        ground_truth: The answer, also boxed, also as a number.
    """
    given = extract_boxed_answer(str(solution_str))
    return given is not None and grade_answer(given, bare_truth(ground_truth))
