"""Equations and inequalities: names taken off, and equality up to a constant factor."""

import re
from collections.abc import Callable
from fractions import Fraction

from slime.rewards.evaluation import Hopeless, Value, evaluate
from slime.rewards.expression import Node, Undecided, parse, variables

_RELATION = re.compile(r"\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|\\ne(?![a-zA-Z])|[=<>]")
_NAME = re.compile(
    r"^(\([a-zA-Z](?: *, *[a-zA-Z])+ *\)"  # (x, y)
    r"|(?:[a-zA-Z]|\\[a-z]+)(?:_\{?\w+\}?)?(?:\([a-zA-Z](?:,[a-zA-Z])*\))?)\s*=(?!=)\s*"
)
_VARIABLE = re.compile(r"[a-zA-Z]|\\(?:theta|alpha|beta|lambda|mu)")
_LETTER = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]")
# A bound before the variable: its bracket, and whether it bounds from below.
_ENDS = {"<": ("(", True), "\\le": ("[", True), ">": (")", False), "\\ge": ("]", False)}
_MIRRORED = {"<": ">", "\\le": "\\ge", ">": "<", "\\ge": "\\le"}
_FLIPPED = {">": "<", "\\ge": "\\le"}


def is_relation(text: str) -> bool:
    r"""Whether `=`, `<`, `\le` or another relation occurs."""
    return _RELATION.search(text) is not None


def without_name(text: str) -> str:
    """`x = 5` -> `5`, where what is left is no relation."""
    value = _NAME.sub("", text, count=1)
    return text if is_relation(value) else value


def as_interval(text: str) -> str | None:
    """`x > 3` as `(3, \\infty)` and `1 < x \\le 2` as `(1, 2]`; None for any other relation."""
    signs = _RELATION.findall(text)
    sides = [side.strip() for side in _RELATION.split(text)]
    if not signs or not all(sign in _ENDS for sign in signs):
        return None
    if len(signs) == 1 and _VARIABLE.fullmatch(sides[0]):
        sides, signs = [sides[1], sides[0]], [_MIRRORED[signs[0]]]
    if len(signs) == 1 and _VARIABLE.fullmatch(sides[1]) and not _LETTER.search(sides[0]):
        bracket, is_low = _ENDS[signs[0]]
        end = sides[0]
        return f"{bracket}{end}, \\infty)" if is_low else f"(-\\infty, {end}{bracket}"
    if len(signs) == 2 and _VARIABLE.fullmatch(sides[1]):
        low, high = _ENDS[signs[0]], _ENDS[_MIRRORED[signs[1]]]
        if low[1] and not high[1] and not _LETTER.search(sides[0] + sides[2]):
            return f"{low[0]}{sides[0]}, {sides[2]}{high[0]}"
    return None


def compare_relations(
    given: str, truth: str, compare_values: Callable[[str, str], bool | None]
) -> bool | None:
    """Whether two relations say the same; only a yes is certain, except for one name's values."""
    names = _NAME.match(given), _NAME.match(truth)
    if names[0] and names[1] and names[0][1] == names[1][1]:
        verdict = compare_values(without_name(given), without_name(truth))
        if verdict is not None:
            return verdict
    try:
        left, right = _difference(given), _difference(truth)
        return _proportional(left, right) or None
    except (Undecided, Hopeless):
        return None


def _difference(text: str) -> tuple[str, Node]:
    """The relation with everything on one side: `a > b` as ("<", b - a)."""
    signs = _RELATION.findall(text)
    if len(signs) != 1:
        raise Undecided("a chain")
    left, right = _RELATION.split(text)
    sign = _FLIPPED.get(signs[0], signs[0])
    if sign != signs[0]:
        left, right = right, left
    return sign, ("-", parse(left), parse(right))


def _proportional(given: tuple[str, Node], truth: tuple[str, Node]) -> bool:
    """Whether the sides' differences have one ratio everywhere (positive in an inequality)."""
    names = sorted(variables(given[1]) | variables(truth[1]))
    if given[0] != truth[0] or variables(given[1]) != variables(truth[1]) or not names:
        return False
    ratios = set()
    for shift in (2, 3, 7, 11, 19):
        point: dict[str, Value] = {
            name: Fraction(shift * 53 + place * 17, 29 + place) * (-1) ** (shift + place)
            for place, name in enumerate(names)
        }
        values = [evaluate(tree, point) for _, tree in (given, truth)]
        if not all(isinstance(value, Fraction) and value for value in values):
            raise Undecided("no ratio of exact numbers")
        ratios.add(values[0] / values[1])
    if len(ratios) != 1:
        return False
    ratio = ratios.pop()
    return given[0] in ("=", "\\ne") or (isinstance(ratio, Fraction) and ratio > 0)
