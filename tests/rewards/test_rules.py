"""The rule-based graders beside the mathematical one."""

import time

import pytest

from slime.rewards.dapo import (
    compute_score,
    is_correct_minerva,
    is_correct_strict_box,
    normalize_final_answer,
    verify,
)
from slime.rewards.deepscaler import get_deepscaler_rule_based_reward
from slime.rewards.exact import exact_match
from slime.rewards.f1 import f1_score, normalize_answer
from slime.rewards.gpqa import compute_gpqa_reward


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        ("dcba", "dcba", 1.0),
        (" dcba\n", "dcba", 1.0),
        ("dcba<|end|>", "dcba", 1.0),
        ("dcba <|im_end|></s>", "dcba", 1.0),
        ("dcb", "dcba", 0.0),
        ("dcba.", "dcba", 0.0),
        ("0", 0, 1.0),
        ("", 0, 0.0),
        ("a |>", "a |>", 1.0),
        ("idk", "dcba", 0.0),
    ],
)
def test_exact(response: str, label: str | int, reward: float) -> None:
    assert exact_match(response, label) == reward


@pytest.mark.parametrize(
    ("solution", "truth", "score"),
    [
        ("Answer: 5", "5", 1.0),
        ("Answer: 0", 0.5, -1.0),
        ("Answer: 0", "0.5", -1.0),
        ("Answer: 0", "1/2", -1.0),
        ("Answer: 0.5", "1/2", 1.0),
        ("Answer: $\\frac{1}{2}$", "1/2", 1.0),
        ("answer : \\boxed{34}", 34, 1.0),
        ("Answer: 1\nAnswer: x = 2", "2", 1.0),
        ("it is 5", "5", -1.0),
        ("", "5", -1.0),
        ("Answer: 5" + " " * 400, "5", -1.0),  # only the last 300 characters are read
    ],
)
def test_dapo(solution: str, truth: str | int | float, score: float) -> None:
    result = compute_score(solution, truth)
    assert set(result) == {"score", "acc", "pred"}
    assert result["score"] == score and result["acc"] is (score == 1.0)


def test_dapo_parts() -> None:
    assert is_correct_minerva("Answer: 12", "\\boxed{12}", gt_need_extract=True) == (True, "12")
    assert is_correct_minerva("nothing", "12") == (False, "[INVALID]")
    assert is_correct_strict_box("... \\boxed{7}", "7") == (1, "7")
    assert is_correct_strict_box("\\boxed{7}" + "." * 200, "7") == (-1, None)
    assert verify("Answer: 7", "8") is False and verify("\\boxed{7}", "7", True) is True
    assert normalize_final_answer("x = \\boxed{ 3 }") == "3"


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        ("<think>..</think> so \\boxed{1/2}", "0.5", 1),
        ("<think>\\boxed{1/2}</think> so 3", "0.5", 0),
        ("\\boxed{1/2}", "0.5", 0),
        ("x ###Response \\boxed{4}", 4, 1),
        ("</think>\\boxed{4}", ["3", "4"], 1),
        ("</think>\\boxed{0}", 0, 1),
    ],
)
def test_deepscaler(response: str, label: object, reward: int) -> None:
    assert get_deepscaler_rule_based_reward(response, label) == reward


def test_f1() -> None:
    assert normalize_answer("The  Cat, a dog!") == "cat dog"
    # 2 common of 3 given and 4 true words.
    f1, precision, recall = f1_score("red big cat", "the big cat sat down")
    assert (precision, recall) == (pytest.approx(2 / 3), pytest.approx(2 / 4))
    assert f1 == pytest.approx(2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2))
    assert f1_score("yes indeed", "yes") == (0.0, 0.0, 0.0)
    assert f1_score("Yes.", "yes") == (1.0, 1.0, 1.0)
    assert f1_score("", "x") == f1_score(None, "x") == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("response", "label", "metadata", "reward"),
    [
        ("The answer is (B).", "B", None, 1.0),
        ("The answer is (B).", "I", None, 0.0),
        ("The answer is B", "b", None, 1.0),
        ("**Answer:** C", "C", None, 1.0),
        ("Answer: (A) because of that, not (B)", "A", None, 1.0),
        ("First (A) seems right, but (D) fits.", "D", None, 1.0),
        ("It is\n\nC\n", "C", None, 1.0),
        ("A good question. I think it is hard", "A", None, 0.0),
        ("The answer is a matter of taste", "A", None, 0.0),
        ("\\boxed{\\text{D}}", "D", None, 1.0),
        ("<think>The answer is A</think>The answer is B", "A", None, 0.0),
        ("The answer is B", "blue", {"choices": ["red", "blue"]}, 1.0),
        ("The answer is B", 1, {"choices": ["red", "blue"]}, 1.0),
        ("The answer is A", 0, {"choices": {"A": "red", "B": "blue"}}, 1.0),
        ("\\boxed{blue}", "B", {"choices": ["red", "blue"]}, 1.0),
        ("The answer is E", "E", {"choices": ["red", "blue"]}, 0.0),
        ("The answer is J", "J", {"valid_letters": ["I", "J"]}, 1.0),
        ("The answer is A", "A", {"correct_letter": "B"}, 0.0),
        ("", "B", None, 0.0),
    ],
)
def test_gpqa(response: str, label: str | int, metadata: dict | None, reward: float) -> None:
    assert compute_gpqa_reward(response, label, metadata) == reward


@pytest.mark.parametrize(
    "response",
    [" " * 100_000, "Answer" + " " * 100_000, "\n" * 100_000, "B " * 50_000, "answer is " * 20_000],
)
def test_long_responses_take_linear_time(response: str) -> None:
    started = time.process_time()
    compute_gpqa_reward(response, "B")
    compute_score(response, "B")
    exact_match(response, "B")
    f1_score(response, "B")
    get_deepscaler_rule_based_reward(response, "B")
    assert time.process_time() - started < 3.0
