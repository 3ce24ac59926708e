"""The grader of DAPO (arXiv:2503.14476): `Answer: ...` on the last lines, score 1 or -1."""

import re
from typing import Any

from slime.rewards.boxes import bare_truth, last_boxed_only_string, remove_boxed
from slime.rewards.math_answers import grade_answer, mathd_normalize_answer

__all__ = [
    "compute_score",
    "is_correct_minerva",
    "is_correct_strict_box",
    "last_boxed_only_string",
    "normalize_final_answer",
    "remove_boxed",
    "verify",
]

INVALID = "[INVALID]"
_ANSWER_PATTERN = r"(?i)Answer\s*:\s*([^\n]+)"
_TAIL = 300  # characters of the response that are read
_STRICT_TAIL = 100


def normalize_final_answer(final_answer: str) -> str:
    """One spelling of an answer: what follows the last `=`, boxes and layout taken off."""
    text = bare_truth(final_answer.rsplit("=", 1)[-1])
    return mathd_normalize_answer(text) or ""


def is_correct_minerva(
    solution_str: str,
    gt: str,
    gt_need_extract: bool = False,
    answer_pattern: str = _ANSWER_PATTERN,
) -> tuple[bool, str]:
    """Compare the last `Answer: ...` with the truth.

    Returns:
        Whether it is right, and the normalised prediction (`[INVALID]` without an answer).
    """
    matches = re.findall(answer_pattern, solution_str)
    prediction = normalize_final_answer(matches[-1]) if matches else INVALID
    truth = bare_truth(gt) if gt_need_extract else str(gt)
    return _same(matches[-1] if matches else INVALID, truth), prediction


def is_correct_strict_box(
    pred: str, gt: str, pause_tokens_index: list[int] | None = None
) -> tuple[int, str | None]:
    """Compare the last box near the end with the truth: (1 or -1, the box's content or None)."""
    end = pause_tokens_index[-1] if pause_tokens_index else len(pred)
    boxed = last_boxed_only_string(pred[max(0, end - _STRICT_TAIL) :])
    if boxed is None:
        return -1, None
    answer = remove_boxed(boxed)
    return (1 if _same(answer, str(gt)) else -1), answer


def verify(
    solution_str: str,
    answer: str,
    strict_box_verify: bool = False,
    pause_tokens_index: list[int] | None = None,
) -> bool:
    """Whether the solution's answer is right (in its last box when `strict_box_verify`)."""
    return _verify(solution_str, answer, strict_box_verify, pause_tokens_index)[0]


def compute_score(
    solution_str: str,
    ground_truth: str | int | float,
    strict_box_verify: bool = False,
    pause_tokens_index: list[int] | None = None,
) -> dict[str, Any]:
    """Grade a solution by its last 300 characters.

    Returns:
        score (1.0 or -1.0), acc (whether it is right), pred (the answer found). Training needs
        `--reward-key score`.
    """
    correct, prediction = _verify(
        solution_str[-_TAIL:], str(ground_truth), strict_box_verify, pause_tokens_index
    )
    return {"score": 1.0 if correct else -1.0, "acc": correct, "pred": prediction}


def _verify(
    solution: str, truth: str, strict: bool, pause_tokens_index: list[int] | None
) -> tuple[bool, str | None]:
    if strict:
        score, prediction = is_correct_strict_box(solution, truth, pause_tokens_index)
        return score == 1, prediction
    return is_correct_minerva(solution, truth)


def _same(answer: str, truth: str) -> bool:
    given = bare_truth(answer.rsplit("=", 1)[-1])
    normal = normalize_final_answer(truth)
    return normalize_final_answer(answer) == normal != "" or grade_answer(given, bare_truth(truth))
