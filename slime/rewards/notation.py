"""One notation for mathematical answers: layout and units taken off, signs and words as LaTeX."""

import re

_SIGNS = str.maketrans(
    {
        "\u2212": "-",
        "\u2013": "-",
        "\u00d7": "\\times ",
        "\u00b7": "\\cdot ",
        "\u00f7": "\\div ",
        "\u03c0": "\\pi ",
        "\u221a": "\\sqrt ",
        "\u221e": "\\infty ",
        "\u2264": "\\le ",
        "\u2265": "\\ge ",
        "\u2260": "\\ne ",
        "\u00b1": "\\pm ",
        "\u222a": "\\cup ",
        "\u2208": "\\in ",
        "\u2205": "\\emptyset ",
        "\u00b0": "",
        "\u00b2": "^2",
        "\u00b3": "^3",
        "\u00a0": " ",
    }
)
_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])|\\(?:displaystyle|textstyle|limits|quad|qquad)"
    r"(?![a-zA-Z])|\\[!,;:> ]|\\\$|\$|\^\s*(?:\{\s*)?\\circ\s*\}?|\\degree(?![a-zA-Z])|~"
)
_TEXT = re.compile(
    r"\\(?:text|mathrm|textbf|textit|mbox|mathbf|mathit|operatorname|rm|bf)\s*\{([^{}]*)\}"
)
_UNIT = re.compile(r"(?<=[\d)}])\s*\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}(?:\s*\^\{?\d\}?)?\s*$")
_NO_UNITS = re.compile(r"^\s*(?:and|or)\b")
_PLAIN_UNIT = re.compile(
    r"(?<=[\d)}])\s*(?:square |cubic |sq\.? )?(?:cm|mm|km|kg|mg|ml|m|g|s|ft|feet|foot|inch|inches|"
    r"miles?|meters?|metres?|centimeters?|kilometers?|grams?|kilograms?|liters?|litres?|seconds?|"
    r"minutes?|hours?|days?|weeks?|months?|years?|dollars?|cents?|degrees?|units?|people|points?|"
    r"apples?|students?|ways|mph|km/h|m/s)(?:\^\{?[23]\}?)?$"
)
_THIN_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|\\,|,\\!|\\ )(?=\d{3}(?!\d))")
_JOINED = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*(?:,?\s*(?:and|or))\s*\}|\\(?:lor|vee)(?!\w)")
_PLAIN_JOINED = re.compile(r"(?<=[\d)}a-z])\s+(?:and|or)\s+(?=[-\d(\\a-z])")
_FUNCTION_WORD = re.compile(
    r"(?<![\\a-zA-Z])(sqrt|sin|cos|tan|sec|csc|cot|arcsin|arccos|arctan|ln|log|exp|pi|infty)"
    r"(?![a-zA-Z])"
)
_INFINITY_WORD = re.compile(r"(?<![\\a-zA-Z])(?:inf|infinity|oo)(?![a-zA-Z])")
_MIXED = re.compile(r"(?<![\w.^}])(\d+)\s*\\frac\s*(?:\{(\d+)\}\s*\{(\d+)\}|(\d)(\d))")
_PLAIN_MIXED = re.compile(r"(-?)(\d+) +(\d+)/(\d+)")
_SPACED = re.compile(r"-?\d{1,3}( \d{3})+")
_SCIENTIFIC = re.compile(r"([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})")
_SPELLINGS = (
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(?:leqslant|leq)(?![a-zA-Z])|<="), r"\\le "),
    (re.compile(r"\\(?:geqslant|geq)(?![a-zA-Z])|>="), r"\\ge "),
    (re.compile(r"\\neq(?![a-zA-Z])"), r"\\ne "),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"\\(?:lbrace|\{)"), "{"),
    (re.compile(r"\\(?:rbrace|\})"), "}"),
    (re.compile(r"\\(?:varnothing|O)(?![a-zA-Z])"), r"\\emptyset "),
)
_LOOSE_SPACE = re.compile(r"(?<!\d) | (?!\d)")


def plain(answer: str) -> str:
    r"""The answer in one notation; spaces stay, as `2 3` must not become 23.

    Dollar signs, `\left`, degrees, units after a number and text commands go; `\dfrac` becomes
    `\frac`, `\{` a brace, `3\frac{1}{2}` a sum, `and` a comma. A percent sign stays.
    """
    text = answer.translate(_SIGNS).strip().strip("$").rstrip(".").strip()
    text = _THIN_THOUSANDS.sub("", text)
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    text = _LAYOUT.sub(" ", _without_unit(text)).replace("\\%", "%")
    text = _TEXT.sub(r" \1 ", _JOINED.sub(",", text)).strip()
    text = _PLAIN_JOINED.sub(", ", _PLAIN_UNIT.sub("", text))
    text = _FUNCTION_WORD.sub(r"\\\1 ", _INFINITY_WORD.sub(r"\\infty ", text))
    return " ".join(_numbers(text).split())


def squeeze(text: str) -> str:
    """Without spaces, except between digits."""
    return _LOOSE_SPACE.sub("", " ".join(text.split()))


def drop_layout(answer: str) -> str:
    """Answers that differ in layout only get one spelling; percent signs and units go."""
    text = answer.strip().rstrip(".").strip()
    text = _THIN_THOUSANDS.sub("", text)
    text = _SPELLINGS[0][0].sub(_SPELLINGS[0][1], text)
    text = _LAYOUT.sub("", _without_unit(text)).replace("\\%", "").replace("%", "")
    text = _TEXT.sub(r"\1", text)
    text = text.replace("\\{", "{").replace("\\}", "}").replace("\u2212", "-")
    return squeeze(text)


def _without_unit(text: str) -> str:
    match = _UNIT.search(text)
    return text if match is None or _NO_UNITS.match(match[1]) else text[: match.start()]


def _numbers(text: str) -> str:
    """Mixed numbers as sums (7 3/4 is 7 + 3/4), 1.5e3 as a product, 10 000 as one number."""
    if _SPACED.fullmatch(text.strip()):
        return text.replace(" ", "")
    if match := _PLAIN_MIXED.fullmatch(text.strip()):
        return f"{match[1]}({match[2]}+{match[3]}/{match[4]})"
    if match := _SCIENTIFIC.fullmatch(text.strip()):
        return f"{match[1]}*10^({match[2]})"
    return _MIXED.sub(_mixed, text)


def _mixed(match: re.Match[str]) -> str:
    top, bottom = match[2] or match[4], match[3] or match[5]
    if len(top) > 9 or len(bottom) > 9 or int(top) >= int(bottom):
        return match[0]  # no proper fraction: a product
    return f"({match[1]}+\\frac{{{top}}}{{{bottom}}})"
