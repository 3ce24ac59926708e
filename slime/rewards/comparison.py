"""Whether two answers are equal as mathematics, in microseconds: yes, no, or undecided.

A yes or a no is certain; what this notation does not cover (calculus, inequalities, set builders)
stays undecided and is work for `slime.rewards.symbolic_pool`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from slime.rewards.evaluation import Hopeless, Value, evaluate
from slime.rewards.expression import Node, Undecided, parse, variables
from slime.rewards.notation import plain, squeeze
from slime.rewards.relations import as_interval, compare_relations, is_relation, without_name

Verdict = bool | None
"""None: undecided."""

LONGEST_ANSWER = 2000  # characters; a longer text is no answer
_LARGEST_SET = 30
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{3,}")
_MEMBERSHIP = re.compile(r"^[a-zA-Z]\s*\\in(?![a-zA-Z])\s*")
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
_FORMULA = re.compile(r"^\s*\d|[-+^/]")
_ARGUMENTS = re.compile(r"_\{[^{}]*\}|\([^()]*\)")
_IN_SEQUENCE = re.compile(r"\d\s+\d")
_LIMITS = re.compile(r"\\(?:int|sum|prod|lim|in|cup|cap|le|ge)(?![a-zA-Z])|[<>]")
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}", re.DOTALL)
_ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?")
_ATOMS = {"\\infty": 1, "+\\infty": 1, "-\\infty": -1, "\\emptyset": 0}
_OPENING, _CLOSING = "([{", ")]}"


def compare(given: str, truth: str) -> Verdict:
    """Whether `given` equals `truth`; both are bare answers in plain or LaTeX notation."""
    if not given.strip() or max(len(given), len(truth)) > LONGEST_ANSWER:
        return False
    return _compare(plain(given), plain(truth))


def _compare(given: str, truth: str) -> Verdict:
    if not given or not truth:
        return False
    if squeeze(given) == squeeze(truth):
        return True
    if "\\begin" in given or "\\begin" in truth:
        return _compare_matrices(given, truth)
    if _WORD.search(given) or _WORD.search(truth):
        return _compare_words(given, truth)
    given, truth = _MEMBERSHIP.sub("", given), _MEMBERSHIP.sub("", truth)
    intervals = [as_interval(text) for text in (given, truth)]
    if any(intervals) and all(
        intervals[i] or text[0] in "[(" for i, text in ((0, given), (1, truth))
    ):
        return _compare_parts(intervals[0] or given, intervals[1] or truth)
    if is_relation(given) and is_relation(truth):
        return compare_relations(given, truth, compare_values)
    given, truth = without_name(given), without_name(truth)
    if is_relation(given) != is_relation(truth):
        return _compare_claim(*(given, truth) if is_relation(given) else (truth, given))
    return _compare_parts(given, truth)


def _compare_claim(relation: str, value: str) -> Verdict:
    """`2 + 3 = 5` has the value 5; `100 y = 5` and `2 = 5` have none."""
    if len(split_parts(relation)) > 1:
        return _compare_parts(relation, value)
    sides = relation.split("=")
    if len(sides) != 2 or not _FORMULA.search(_ARGUMENTS.sub("", sides[0])):
        return None
    holds = compare_values(sides[0], sides[1])
    return _every([holds, compare_values(sides[1], value)])


def _compare_words(given: str, truth: str) -> Verdict:
    """Words are no products of their letters; only where there is also mathematics on both sides
    is there anything left to decide.
    """
    if squeeze(given).casefold() == squeeze(truth).casefold():
        return True
    both = all(re.search(r"[\d\\=<>^]", text) for text in (given, truth))
    return None if both else False


def _compare_matrices(given: str, truth: str) -> Verdict:
    matrices = []
    for text in (given, truth):
        match = _MATRIX.fullmatch(text.strip("[]() "))
        if match is None or "\\begin" in match[2]:
            return None
        rows = [row for row in _ROW_END.split(match[2]) if row.strip()]
        matrices.append([[cell.strip() for cell in row.split("&")] for row in rows])
    if [len(row) for row in matrices[0]] != [len(row) for row in matrices[1]]:
        return False
    cells = [[cell for row in matrix for cell in row] for matrix in matrices]
    return _every(compare_values(g, t) for g, t in zip(cells[0], cells[1], strict=True))


def _compare_parts(given: str, truth: str) -> Verdict:
    for sign in ("\\pm", "\\cup"):
        if sign in given or sign in truth:
            return _compare_alternatives(given, truth, sign)
    given_parts, truth_parts = split_parts(given), split_parts(truth)
    if len(given_parts) == len(truth_parts) == 1:
        return compare_values(given, truth)
    # Brackets are part of the meaning, (0, 1] is not [0, 1]; a bare list is a set of answers.
    kinds = _brackets(given), _brackets(truth)
    if kinds == ("{}", "{}"):
        return _same_members(given_parts, truth_parts)
    if len(given_parts) != len(truth_parts):
        return _unequal(given_parts + truth_parts)
    if kinds in (("", ""), ("", "{}"), ("{}", "")):
        return _same_members([without_name(p) for p in given_parts], truth_parts)
    in_order = _every(compare_values(g, t) for g, t in zip(given_parts, truth_parts, strict=True))
    if kinds[0] == kinds[1] or set(kinds) == {"", "()"}:
        return in_order
    return _unequal(given_parts + truth_parts)


def _compare_alternatives(given: str, truth: str, sign: str) -> Verdict:
    r"""`1 \pm x` as two answers, a union as a set of parts (of which only a yes is certain)."""
    sides = []
    for text in (given, truth):
        if sign == "\\cup":
            sides.append([part.strip() for part in text.split(sign)])
        elif text.count(sign) == 1:
            sides.append([text.replace(sign, "+").strip(" +"), text.replace(sign, "-")])
        else:
            sides.append(split_parts(text))
    if any(sign in part for side in sides for part in side):
        return None
    verdict = _same_members(sides[0], sides[1], _compare_parts)
    return verdict if sign == "\\pm" else verdict or None


def _same_members(
    given: Sequence[str],
    truth: Sequence[str],
    same: Callable[[str, str], Verdict] | None = None,
) -> Verdict:
    """Whether two sets have the same members, in any order and however often."""
    if max(len(given), len(truth)) > _LARGEST_SET:
        return sorted(map(squeeze, given)) == sorted(map(squeeze, truth)) or None
    same = same or compare_values
    table = [[same(without_name(g), without_name(t)) for g in given] for t in truth]
    lines = [*table, *map(list, zip(*table, strict=True))]
    return _every(_any(line) for line in lines)


def compare_values(given: str, truth: str) -> Verdict:
    """Compare two single values: numbers exactly, formulas as functions."""
    left, right = squeeze(given), squeeze(truth)
    if left == right:
        return bool(left) or None
    if left in _ATOMS or right in _ATOMS:
        return _compare_atoms(left, right)
    percent = left.endswith("%"), right.endswith("%")
    if any(percent):
        given, truth = given.rstrip("% "), truth.rstrip("% ")
    try:
        trees = parse(given), parse(truth)
        scales = [Fraction(1)] if percent[0] == percent[1] else [Fraction(1), Fraction(1, 100)]
        verdicts = [_agree(_scaled(trees, percent, scale)) for scale in scales]
    except Undecided:
        return False if _is_out_of_question(given, truth) else None
    except Hopeless:
        return False
    return _any(verdicts)


def _is_out_of_question(given: str, truth: str) -> bool:
    """Computer algebra would read `2 3` as a sum, and calculate with infinity as with a number."""
    if _IN_SEQUENCE.search(given) or _IN_SEQUENCE.search(truth):
        return True
    one_sided = ("\\infty" in given) != ("\\infty" in truth)
    return one_sided and not _LIMITS.search(given + truth)


def _compare_atoms(left: str, right: str) -> Verdict:
    """Compare what is no number: it equals itself only."""
    if left in _ATOMS and right in _ATOMS:
        return _ATOMS[left] == _ATOMS[right]
    return _unequal([right if left in _ATOMS else left])


def _scaled(
    trees: tuple[Node, Node], percent: tuple[bool, bool], scale: Fraction
) -> tuple[Node, Node]:
    """50% is one half, and also the plain 50 that many labels write for it."""
    if scale == 1:
        return trees
    place = percent.index(True)
    scaled = list(trees)
    scaled[place] = ("*", trees[place], ("number", scale))
    return scaled[0], scaled[1]


def _agree(trees: tuple[Node, Node]) -> Verdict:
    names = variables(trees[0]) | variables(trees[1])
    verdicts = []
    for point, is_positive in points(names):
        try:
            verdict = _agree_at(trees, point)
        except Undecided:
            verdict = None
        if verdict is False and is_positive:
            return False
        # At negative values a root or logarithm may take another branch.
        verdicts.append(verdict or None)
    return _every(verdicts)


def _agree_at(trees: tuple[Node, Node], point: dict[str, Value]) -> Verdict:
    given, truth = evaluate(trees[0], point), evaluate(trees[1], point)
    if isinstance(given, Fraction) and isinstance(truth, Fraction):
        return given == truth
    try:
        left, right = complex(given), complex(truth)
    except OverflowError:
        return False  # an exact number beyond any that the rounded one can be
    size, difference = max(abs(left), abs(right)), abs(left - right)
    if size < 1e-9:
        return None  # nearly zero: rounding alone may have made it
    if difference <= 1e-13 * size:
        return True
    return False if difference > 1e-9 * size else None


def points(names: Iterable[str]) -> list[tuple[dict[str, Value], bool]]:
    """Fixed points at which two formulas are compared, and whether their coordinates are positive;
    one suffices without variables.

    Two different rational functions of moderate degree agree at all of them with vanishing
    probability (Schwartz, 1980; Zippel, 1979).
    """
    ordered = sorted(names)
    if not ordered:
        return [({}, True)]
    shifts = ((0, 1), (5, 1), (11, 1), (17, -1))
    return [(_point(ordered, shift, sign), sign > 0) for shift, sign in shifts]


def _point(names: Sequence[str], shift: int, sign: int) -> dict[str, Value]:
    return {
        name: sign
        * Fraction(1009 * (shift + 1) + 97 * place * place + 13, 7919 + 31 * place + shift)
        for place, name in enumerate(names)
    }


def _unequal(parts: Iterable[str]) -> Verdict:
    """A no, if every part is understood: otherwise the parts may not be what they look like."""
    try:
        for part in parts:
            if squeeze(part) not in _ATOMS:
                parse(without_name(part))
    except Undecided:
        return None
    return False


def _every(verdicts: Iterable[Verdict]) -> Verdict:
    seen = list(verdicts)
    if False in seen:
        return False
    return None if None in seen else True


def _any(verdicts: Iterable[Verdict]) -> Verdict:
    seen = list(verdicts)
    if True in seen:
        return True
    return None if None in seen else False


def _brackets(text: str) -> str:
    """The pair of brackets around the whole text, if there is one."""
    if len(text) < 2 or text[0] not in _OPENING or text[-1] not in _CLOSING:
        return ""
    depth = 0
    for character in text[:-1]:
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth == 0:
            return ""
    return text[0] + text[-1]


def split_parts(text: str) -> list[str]:
    """Parts between top-level commas, outer brackets taken off; `1,000` is one number."""
    if _THOUSANDS.fullmatch(text.replace(" ", "")):
        return [text]
    inner = text[1:-1] if _brackets(text) else text
    parts, depth, start = [], 0, 0
    for position, character in enumerate(inner):
        depth += (character in _OPENING) - (character in _CLOSING)
        if character in ",;" and depth == 0:
            parts.append(inner[start:position].strip())
            start = position + 1
    return [*parts, inner[start:].strip()] if parts else [text]
