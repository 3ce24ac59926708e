"""Exact comparison: never wrong, and decided for nearly all answers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.answer_pairs import HOSTILE, Pair, generated, handmade
from slime.rewards.comparison import compare
from slime.rewards.notation import plain, squeeze


@pytest.mark.parametrize("pair", handmade(), ids=lambda pair: f"{pair[0]} | {pair[1]}")
def test_a_verdict_is_right_in_both_directions(pair: Pair) -> None:
    answer, truth, equal = pair
    assert compare(answer, truth) in (equal, None)
    assert compare(truth, answer) in (equal, None)


def test_pairs_made_by_rule_are_all_decided() -> None:
    for answer, truth, equal in generated(7, 400):
        assert compare(answer, truth) is equal, (answer, truth)


def test_few_answers_need_computer_algebra() -> None:
    pairs = handmade()
    assert sum(compare(answer, truth) is None for answer, truth, _ in pairs) < 0.12 * len(pairs)


@pytest.mark.parametrize(
    ("answer", "truth"),
    [("\\int_0^1 x dx", "1/2"), ("x \\ne 3", "x = 3"), ("3.14159265358", "\\pi"), ("x+y=1", "y=2")],
)
def test_what_is_not_certain_stays_undecided(answer: str, truth: str) -> None:
    assert compare(answer, truth) is None


def test_a_number_too_large_to_round_differs_from_a_rounded_one() -> None:
    assert compare("10^{400}", "\\sqrt{2}") is False
    assert compare("\\sqrt{2}x", "10^{400}x") is False


@pytest.mark.parametrize("answer", HOSTILE)
def test_hostile_answers_equal_nothing(answer: str) -> None:
    assert not compare(answer, "5/7")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("$\\left( \\dfrac{1}{2}, 3 \\right)$.", "( \\frac{1}{2}, 3 )"),
        ("1{,}234\\text{ cm}^2", "1234"),
        ("3\\frac{1}{2}", "(3+\\frac{1}{2})"),
        ("3\\frac{5}{2}", "3\\frac{5}{2}"),
        ("2^3\\frac12", "2^3\\frac12"),
        ("-7 3/4", "-(7+3/4)"),
        ("1 \\text{ and } 2", "1 , 2"),
        ("x \\leq 5", "x \\le 5"),
        ("sqrt(2)", "\\sqrt (2)"),
        ("\\leftarrow", "\\leftarrow"),
        ("50 \\%", "50 %"),
    ],
)
def test_one_notation(answer: str, expected: str) -> None:
    assert plain(answer) == expected


_SIGNS = "0123456789xyei+-*/^(){}[],.;|=<>!_ \\$%&"
_COMMANDS = ["\\frac", "\\sqrt", "\\pm", "\\cup", "\\in", "\\infty", "\\text{a b}", "\\left("]
_TEXTS = st.lists(st.one_of(st.sampled_from(_SIGNS), st.sampled_from(_COMMANDS)), max_size=25).map(
    "".join
)


@settings(max_examples=400, deadline=None)
@given(_TEXTS, _TEXTS)
def test_comparison_never_raises_and_knows_equal_texts(answer: str, truth: str) -> None:
    assert compare(answer, truth) in (True, False, None)
    if squeeze(plain(answer)):
        assert compare(answer, answer) is True
