"""Grading of mathematical answers: extraction of the boxed answer, normalisation, comparison as
mathematics.

Whatever the text holds, grading takes a bounded number of steps and executes nothing, so it may run
on any thread and needs no time limit.
"""

import re
from fractions import Fraction

from slime.rewards.expression import Node, Undecided, Value, evaluate, parse, variables

_LONGEST_ANSWER = 2000  # characters; a longer text is no answer

_LARGEST_SET = 30
_BOXES = ("\\boxed", "\\fbox")
_DROPPED = re.compile(
    r"\\left|\\right|\\displaystyle|\\[!,;:> ]|\\\$|\$|\\%|%|\^\\circ|\^\{\\circ\}|\\degree|~"
)
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox|mathbf)\s*\{([^{}]*)\}")
_UNIT = re.compile(r"(?<=[\d)}])\s*\\(?:text|mathrm|mbox)\s*\{[^{}]*\}(?:\s*\^\{?\d\}?)?\s*$")
_BRACE = re.compile(r"[{}]")
_LOOSE_SPACE = re.compile(r"(?<!\d) | (?!\d)")
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{3,}")
_ASSIGNMENT = re.compile(r"^[a-zA-Z](?:\([a-zA-Z]\))?\s*=(?!=)\s*")
_OPENING, _CLOSING = "([{", ")]}"


def last_boxed_only_string(string: str) -> str | None:
    r"""The last `\boxed{...}` or `\fbox{...}` (or `\boxed x`), braces balanced; or None."""
    start = max(string.rfind(box) for box in _BOXES)
    if start < 0:
        return None
    box = next(box for box in _BOXES if string.startswith(box, start))
    content = start + len(box)
    if string[content : content + 1] == " ":
        line = string[content + 1 :].split("\n", 1)[0].split("$", 1)[0]
        return f"{box} {line.rstrip(' .')}"
    if string[content : content + 1] != "{":
        return None
    depth = 0
    for brace in _BRACE.finditer(string, content):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return string[start : brace.end()]
    return None


def remove_boxed(s: str) -> str:
    r"""The content of `\boxed{...}`, `\fbox{...}` or `\boxed x`.

    Raises:
        ValueError: `s` is none of them.
    """
    for box in _BOXES:
        if s.startswith(box + " "):
            return s[len(box) + 1 :]
        if s.startswith(box + "{") and s.endswith("}"):
            return s[len(box) + 1 : -1]
    raise ValueError(f"no boxed answer: {s[:80]!r}")


def extract_boxed_answer(solution: str) -> str | None:
    """The content of the last box; None without one."""
    boxed = last_boxed_only_string(solution)
    return None if boxed is None else remove_boxed(boxed)


def extract_answer(passage: str) -> str | None:
    """The answer a passage states in its last box; None without one."""
    return extract_boxed_answer(passage)


def mathd_normalize_answer(answer: str | None) -> str | None:
    """One spelling for answers that differ in layout only (spaces, dollar signs, `\\left`,
    `\\dfrac`, units).
    """
    if answer is None:
        return None
    text = answer.strip().rstrip(".").strip()
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = _DROPPED.sub("", _UNIT.sub("", text))
    text = _TEXT.sub(r"\1", text)
    text = text.replace("\\{", "{").replace("\\}", "}").replace("\u2212", "-")
    return _squeeze(text)


def grade_answer_mathd(given_answer: str, ground_truth: str) -> bool:
    """Whether both have one normal form."""
    given, truth = (mathd_normalize_answer(str(answer)) for answer in (given_answer, ground_truth))
    return bool(given) and given == truth


def grade_answer_sympy(given_answer: str, ground_truth: str) -> bool:
    """Whether both have one value: numbers exactly, formulas as functions, tuples and intervals by
    part.
    """
    given, truth = str(given_answer), str(ground_truth)
    if not given.strip() or max(len(given), len(truth)) > _LONGEST_ANSWER:
        return False
    return _equal(_prepare(given), _prepare(truth))


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


def bare_truth(ground_truth: str | int | float) -> str:
    """A label as a bare answer: boxes taken off, numbers as text."""
    truth = str(ground_truth)
    boxed = extract_boxed_answer(truth)
    return truth if boxed is None else boxed


def _squeeze(text: str) -> str:
    """Without spaces, except between digits: `2 3` is not 23."""
    return _LOOSE_SPACE.sub("", " ".join(text.split()))


def _prepare(answer: str) -> str:
    r"""Layout taken off, spaces kept (`2 3` must not become 23), `x = 5` reduced to 5."""
    text = re.sub(r"\\[dt]frac", r"\\frac", answer.strip().rstrip(".").strip())
    text = _DROPPED.sub(" ", _UNIT.sub("", text))
    text = _TEXT.sub(r" \1 ", text).replace("\u2212", "-").strip()
    text = text.replace("\\{", "{").replace("\\}", "}")
    return _ASSIGNMENT.sub("", text)


def _equal(given: str, truth: str) -> bool:
    given_parts, truth_parts = _split_parts(given), _split_parts(truth)
    if len(given_parts) == len(truth_parts) == 1:
        return _equal_values(given, truth)
    # Brackets are part of the meaning: (0, 1] is not [0, 1].
    if len(given_parts) != len(truth_parts) or _brackets(given) != _brackets(truth):
        return False
    if _brackets(truth) == ("{", "}"):
        return _equal_sets(given_parts, truth_parts)
    return all(_equal_values(g, t) for g, t in zip(given_parts, truth_parts, strict=True))


def _equal_sets(given: list[str], truth: list[str]) -> bool:
    """Whether the members of two sets of one size match, in any order."""
    if len(truth) > _LARGEST_SET:
        return sorted(given) == sorted(truth)
    left = list(given)
    for member in truth:
        match = next((other for other in left if _equal_values(other, member)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _equal_values(given: str, truth: str) -> bool:
    if _squeeze(given) == _squeeze(truth):
        return bool(given)
    if _WORD.search(given) or _WORD.search(truth):
        return False  # words are no products of their letters
    try:
        trees = parse(given), parse(truth)
        names = variables(trees[0]) | variables(trees[1])
        return all(_agree_at(trees, point) for point in _points(names))
    except Undecided:
        return False


def _agree_at(trees: tuple[Node, Node], point: dict[str, Value]) -> bool:
    given, truth = evaluate(trees[0], point), evaluate(trees[1], point)
    if isinstance(given, Fraction) and isinstance(truth, Fraction):
        return given == truth
    difference = abs(complex(given) - complex(truth))
    # The absolute part is for values like sin(pi), which rounding keeps from zero.
    return difference <= 1e-14 + 1e-13 * max(abs(complex(given)), abs(complex(truth)))


def _points(names: set[str]) -> list[dict[str, Value]]:
    """Fixed points at which two formulas are compared; one suffices without variables.

    Two different rational functions of moderate degree agree at all of them with vanishing
    probability (Schwartz, 1980; Zippel, 1979).
    """
    if not names:
        return [{}]
    return [
        {
            name: Fraction(1009 * (shift + 1) + 97 * place * place + 13, 7919 + 31 * place + shift)
            for place, name in enumerate(sorted(names))
        }
        for shift in (0, 5, 11)
    ]


def _brackets(text: str) -> tuple[str, str]:
    if text and text[0] in _OPENING and text[-1] in _CLOSING:
        return text[0], text[-1]
    return "", ""


def _split_parts(text: str) -> list[str]:
    """Parts between top-level commas, outer brackets taken off; `1,000` is one number."""
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", text.replace(" ", "")):
        return [text]
    inner = text[1:-1] if _brackets(text) != ("", "") else text
    parts, depth, start = [], 0, 0
    for position, character in enumerate(inner):
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0:
            parts.append(inner[start:position].strip())
            start = position + 1
    return [*parts, inner[start:].strip()] if parts else [text]
