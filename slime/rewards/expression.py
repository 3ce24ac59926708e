"""Arithmetic and algebra in plain or LaTeX notation, parsed and evaluated within fixed bounds.

Nothing is executed: the text becomes a tree of a few operations, and numbers stay exact fractions
as long as the operations allow. Every bound (length, depth, size of a power) ends in `Undecided`,
so a hostile answer costs microseconds.
"""

import cmath
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

Value = Fraction | complex
Node = tuple[Any, ...]

_MAX_TOKENS = 400
_MAX_DEPTH = 40
_MAX_BITS = 8192  # of a numerator or denominator

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d[\d,]*\.?\d*|\.\d+)|(?P<name>\\[a-zA-Z]+|[a-zA-Z])|(?P<op>\*\*|[-+*/^(){}\[\]!_]))"
)
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?")
_FUNCTIONS: dict[str, Any] = {
    "\\sin": cmath.sin,
    "\\cos": cmath.cos,
    "\\tan": cmath.tan,
    "\\ln": cmath.log,
    "\\log": cmath.log10,
    "\\exp": cmath.exp,
}
_CONSTANTS: dict[str, complex] = {"\\pi": complex(math.pi), "e": complex(math.e), "i": 1j}
_TIMES = {"\\cdot", "\\times", "*"}
_DIVIDE = {"/", "\\div"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Undecided(Exception):
    """The text is no expression of this grammar, or evaluating it would leave the bounds."""


def parse(text: str) -> Node:
    """The tree of `text`.

    Raises:
        Undecided: It is none of this grammar, or too long.
    """
    parser = _Parser(_tokenize(text))
    tree = parser.sum(0)
    if parser.peek() is not None:
        raise Undecided(f"{parser.peek()!r} is left over")
    return tree


def variables(tree: Node) -> set[str]:
    """Names in the tree that are no constants."""
    if tree[0] == "name":
        return {tree[1]}
    return {name for child in tree[1:] if isinstance(child, tuple) for name in variables(child)}


def evaluate(tree: Node, point: Mapping[str, Value]) -> Value:
    """The value with variables taken from `point`: a Fraction where it is rational, else complex.

    Raises:
        Undecided: Division by zero, overflow, or a power that is too large.
    """
    try:
        value = _evaluate(tree, point)
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        raise Undecided(str(error)) from error
    if isinstance(value, complex) and not cmath.isfinite(value):
        raise Undecided("not finite")
    return value


def _tokenize(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) >= _MAX_TOKENS:
            raise Undecided(text[position : position + 20])
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind]))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent: sum > product (also by juxtaposition) > sign > power > atom."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._position = 0

    def peek(self) -> str | None:
        """The next token's text; None at the end."""
        if self._position < len(self._tokens):
            return self._tokens[self._position][1]
        return None

    def _take(self) -> tuple[str, str]:
        if self._position >= len(self._tokens):
            raise Undecided("it ends too early")
        self._position += 1
        return self._tokens[self._position - 1]

    def sum(self, depth: int) -> Node:
        """A sum of products."""
        if depth > _MAX_DEPTH:
            raise Undecided("nested too deeply")
        tree = self._product(depth)
        while self.peek() in ("+", "-"):
            operation = self._take()[1]
            tree = (operation, tree, self._product(depth))
        return tree

    def _product(self, depth: int) -> Node:
        tree = self._signed(depth)
        while (token := self.peek()) is not None:
            if token in _TIMES or token in _DIVIDE:
                self._take()
                tree = ("/" if token in _DIVIDE else "*", tree, self._signed(depth))
            elif self._tokens[self._position][0] != "op" or token in _CLOSING:
                if self._tokens[self._position][0] == "number":
                    raise Undecided("a number after a factor")  # `2 3` is not 6
                tree = ("*", tree, self._power(depth))
            else:
                break
        return tree

    def _signed(self, depth: int) -> Node:
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self._take()[1] == "-"
        tree = self._power(depth)
        return ("neg", tree) if negative else tree

    def _power(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise Undecided("nested too deeply")
        base = self._atom(depth)
        while self.peek() == "!":
            self._take()
            base = ("!", base)
        if self.peek() in ("^", "**"):
            self._take()
            base = ("^", base, self._signed(depth + 1))
        return base

    def _atom(self, depth: int) -> Node:
        kind, token = self._take()
        if kind == "number":
            return ("number", _number(token))
        if token in _CLOSING:
            return self._until(_CLOSING[token], depth)
        if token == "\\frac":
            return ("/", self._argument(depth), self._argument(depth))
        if token == "\\sqrt":
            return self._root(depth)
        if token in _FUNCTIONS:
            return ("call", token, self._power(depth + 1))
        if token in _CONSTANTS:
            return ("constant", _CONSTANTS[token])
        if kind == "name" and len(token) == 1:
            return ("name", token)
        raise Undecided(f"{token!r} is unknown")

    def _until(self, closing: str, depth: int) -> Node:
        tree = self.sum(depth + 1)
        if self._take()[1] != closing:
            raise Undecided(f"{closing!r} is missing")
        return tree

    def _root(self, depth: int) -> Node:
        degree: Node = ("number", Fraction(2))
        if self.peek() == "[":
            self._take()
            degree = self._until("]", depth)
        return ("^", self._argument(depth), ("/", ("number", Fraction(1)), degree))

    def _argument(self, depth: int) -> Node:
        """A braced group, or one character as LaTeX takes it: `\\frac12` is 1/2."""
        kind, token = self._take()
        if token == "{":
            return self._until("}", depth)
        if kind == "number" and len(token) > 1 and token.isdigit():
            self._position -= 1
            self._tokens[self._position] = (kind, token[1:])
            token = token[0]
        if kind == "number":
            return ("number", _number(token))
        self._position -= 1
        return self._atom(depth)


def _number(token: str) -> Fraction:
    if "," in token:
        if not _THOUSANDS.fullmatch(token):
            raise Undecided(f"{token!r} is no number")
        token = token.replace(",", "")
    if len(token) > _MAX_BITS // 4:
        raise Undecided("a number is too long")
    return Fraction(token.rstrip("."))


def _evaluate(tree: Node, point: Mapping[str, Value]) -> Value:
    kind = tree[0]
    if kind in ("number", "constant"):
        value: Value = tree[1]
        return value
    if kind == "name":
        return point[tree[1]]
    if kind == "call":
        return complex(_FUNCTIONS[tree[1]](_inexact(_evaluate(tree[2], point))))
    left = _evaluate(tree[1], point)
    if kind == "neg":
        return -left
    if kind == "!":
        return _factorial(left)
    right = _evaluate(tree[2], point)
    if kind == "^":
        return _raise_to(left, right)
    if not (isinstance(left, Fraction) and isinstance(right, Fraction)):
        left, right = _inexact(left), _inexact(right)
    return _bounded(_OPERATIONS[kind](left, right))


_OPERATIONS: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def _inexact(value: Value) -> complex:
    return value if isinstance(value, complex) else complex(float(value))


def _bits(value: Fraction) -> int:
    return max(abs(value.numerator).bit_length(), value.denominator.bit_length())


def _bounded(value: Value) -> Value:
    if isinstance(value, Fraction) and _bits(value) > _MAX_BITS:
        raise Undecided("a number grows too large")
    return value


def _factorial(value: Value) -> Value:
    if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= 500:
        raise Undecided("no factorial")
    return Fraction(math.factorial(value.numerator))


def _raise_to(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            if abs(exponent.numerator) * max(_bits(base) - 1, 1) > _MAX_BITS and abs(base) != 1:
                raise Undecided("a power is too large")
            return base**exponent.numerator
        root = _exact_root(base, exponent.denominator)
        if root is not None:
            return _raise_to(root, Fraction(exponent.numerator))
    return complex(_inexact(base) ** _inexact(exponent))


def _exact_root(base: Fraction, degree: int) -> Fraction | None:
    """The rational `degree`-th root of a non-negative fraction; None when there is none."""
    if base < 0 or degree > 64:
        return None
    parts = []
    for part in (base.numerator, base.denominator):
        root = math.isqrt(part) if degree == 2 else round(float(part) ** (1 / degree))
        if root**degree != part:
            return None
        parts.append(root)
    return Fraction(parts[0], parts[1])
