"""Mathematical answers are compared as mathematics, within bounds, and never raise."""

import operator
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.rewards import math_answers
from slime.rewards.comparison import compare
from slime.rewards.evaluation import evaluate
from slime.rewards.expression import Undecided, parse
from slime.rewards.math_answers import (
    extract_boxed_answer,
    grade_answer,
    grade_answer_mathd,
    grade_answer_sympy,
    grade_answer_verl,
    last_boxed_only_string,
    mathd_normalize_answer,
    remove_boxed,
)


@pytest.fixture(autouse=True)
def exact_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may need another process (see test_symbolic_pool for what does)."""

    def forbidden(given: str, truth: str) -> bool:
        raise AssertionError(f"undecided: {given} | {truth}")

    monkeypatch.setattr(math_answers, "is_equal", forbidden)


EQUAL = [
    ("2^{10}", "1024"),
    ("0", "0"),
    ("0.5", "\\frac{1}{2}"),
    ("\\dfrac12", "1/2"),
    ("\\frac{3}{4}", "\\tfrac34"),
    ("1,000", "1000"),
    ("$12$", "12."),
    ("x = 5", "5"),
    ("-\\frac{1}{2}", "\\frac{-1}{2}"),
    ("50\\%", "50"),
    ("90^\\circ", "90"),
    ("5 \\text{ cm}", "5"),
    ("\\sqrt{8}", "2\\sqrt{2}"),
    ("\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"),
    ("\\sqrt[3]{27}", "3"),
    ("8^{2/3}", "4"),
    ("(x+1)^2", "x^2+2x+1"),
    ("a b", "b \\cdot a"),
    ("2\\pi", "\\pi \\times 2"),
    ("5!", "120"),
    ("(1, \\frac{1}{2})", "(1,0.5)"),
    ("\\left( 3, 4 \\right)", "(3,4)"),
    ("\\{2, 1\\}", "\\{1,2\\}"),
    ("\\text{Tuesday}", "Tuesday"),
    ("3 \u2212 1", "2"),
    ("(-1)^{1000001}", "-1"),
]
DIFFERENT = [
    ("9**9**9", "5/7"),
    ("5", "7"),
    ("", "0"),
    ("", ""),
    ("0", "0.5"),
    ("1,2", "12"),
    ("(0, 1]", "[0, 1]"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "(1,2,3)"),
    ("\\{1,2\\}", "\\{1,1\\}"),
    ("stop", "post"),
    ("x^2", "x^3"),
    ("\\frac{1}{0}", "1"),
    ("0.333", "1/3"),
    ("100000000000000000000", "100000000000000000001"),
    ("-5", "5"),
    ("True", "1"),
    ("__import__('os')", "0"),
]


@pytest.mark.parametrize(("answer", "truth"), EQUAL)
def test_equal(answer: str, truth: str) -> None:
    assert grade_answer(answer, truth) and grade_answer(truth, answer)


@pytest.mark.parametrize(("answer", "truth"), DIFFERENT)
def test_different(answer: str, truth: str) -> None:
    assert not grade_answer(answer, truth)


@pytest.mark.parametrize(
    ("solution", "truth", "right"),
    [
        ("\\boxed{5}", "5", True),
        ("\\boxed{0}", 0, True),
        ("\\boxed{0}", "\\boxed{0}", True),
        ("\\boxed{1} no, \\boxed{2}", "1", False),
        ("\\boxed{\\frac{1}{2}} done", 0.5, True),
        ("so $\\boxed 7$.", 7, True),
        ("5", "5", False),
        ("\\boxed{5", "5", False),
        ("\\boxedx{5}", "5", False),
        ("\\boxed{}", "0", False),
        ("\\boxed{9**9**9}", "5/7", False),
    ],
)
def test_whole_solutions(solution: str, truth: str | int | float, right: bool) -> None:
    assert grade_answer_verl(solution, truth) is right


def test_boxes() -> None:
    assert last_boxed_only_string("a \\boxed{x{y}z} b") == "\\boxed{x{y}z}"
    assert extract_boxed_answer("\\fbox{1} and \\boxed{ 2 }") == " 2 "
    assert extract_boxed_answer("none") is None
    with pytest.raises(ValueError, match="no boxed answer"):
        remove_boxed("5")


def test_levels() -> None:
    assert grade_answer_mathd("\\left(1, 2\\right)", "(1,2)")
    assert not grade_answer_mathd("2/4", "1/2")
    assert grade_answer_sympy("2/4", "1/2")


Written = tuple[str, Fraction]  # an expression and its value, built side by side

_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_LEAVES = st.integers(0, 30).map(lambda n: (str(n), Fraction(n)))


def _combine(children: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    def binary(left: Written, sign: str, right: Written) -> Written:
        return f"({left[0]}{sign}{right[0]})", _OPERATORS[sign](left[1], right[1])

    def fraction(top: Written, bottom: int) -> Written:
        return f"\\frac{{{top[0]}}}{{{bottom}}}", top[1] / bottom

    def power(base: Written, exponent: int) -> Written:
        return f"({base[0]})^{{{exponent}}}", base[1] ** exponent

    return st.one_of(
        st.builds(binary, children, st.sampled_from("+-*"), children),
        st.builds(fraction, children, st.integers(1, 9)),
        st.builds(power, children, st.integers(0, 3)),
    )


@settings(deadline=None)
@given(st.recursive(_LEAVES, _combine, max_leaves=8))
def test_arithmetic_is_exact(written: Written) -> None:
    text, exact = written
    try:
        assert evaluate(parse(text), {}) == exact
    except Undecided:
        assert max(exact.numerator.bit_length(), exact.denominator.bit_length()) > 500


@pytest.mark.parametrize(
    "text",
    ["^" + " " * 50_000, "1" + " " * 50_000, "\\text{" * 10_000, "^{ " * 20_000, "1 " * 20_000],
)
def test_normalising_a_long_text_takes_linear_time(text: str) -> None:
    started = time.process_time()
    mathd_normalize_answer(text)
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize(
    "answer",
    [
        "9**9**9**9",
        "(" * 5000 + ")" * 5000,
        "1+" * 5000 + "1",
        "9" * 100_000,
        "(((((3!)!)!)!)!)!",
        "\\frac" * 3000,
        "(1/3+1/7)^{900}" * 40,
        "x^{" * 300 + "1" + "}" * 300,
        "2^{8000}" * 60,
        " " * 200_000,
        "^" + " " * 1_900,
        "1" + " " * 1_900 + "x",
        "(" + "1 or " * 390,
        "^" + " " * 200_000,
        "\\text{" * 30_000,
        "{1," * 1000,
    ],
)
def test_hostile_answers_end_quickly(answer: str) -> None:
    started = time.process_time()
    assert not grade_answer_mathd(answer, "5/7") and not compare(answer, "5/7")
    assert time.process_time() - started < 2.0
