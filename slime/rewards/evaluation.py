"""The value of an expression: exact fractions as long as the operations allow, else complex."""

import cmath
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from slime.rewards.expression import Node, Undecided

Value = Fraction | complex

_MAX_BITS = 8192  # of a numerator or denominator
_HOPELESS_BITS = 1 << 24  # a power this long is no answer, whatever it is compared with
_HOPELESS_FACTORIAL = 1_000_000

_FUNCTIONS: dict[str, Any] = {
    "\\sin": cmath.sin,
    "\\cos": cmath.cos,
    "\\tan": cmath.tan,
    "\\sec": lambda x: 1 / cmath.cos(x),
    "\\csc": lambda x: 1 / cmath.sin(x),
    "\\cot": lambda x: 1 / cmath.tan(x),
    "\\arcsin": cmath.asin,
    "\\arccos": cmath.acos,
    "\\arctan": cmath.atan,
    "\\sinh": cmath.sinh,
    "\\cosh": cmath.cosh,
    "\\tanh": cmath.tanh,
    "\\ln": cmath.log,
    "\\log": cmath.log10,
    "\\lg": cmath.log10,
    "\\exp": cmath.exp,
}
_CONSTANTS: dict[str, complex] = {"\\pi": complex(math.pi), "e": complex(math.e), "i": 1j}


class Hopeless(Exception):
    """There is no value, or writing it out would take megabytes: equal to no sensible answer."""


def evaluate(tree: Node, point: Mapping[str, Value]) -> Value:
    """The value with variables taken from `point`: a Fraction where it is rational, else complex.

    Raises:
        Undecided: Overflow, a power that is too large, or one with several values.
        Hopeless: Division by an exact zero, or a tower of powers.
    """
    try:
        value = _evaluate(tree, point)
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        raise Undecided(str(error)) from error
    if isinstance(value, complex) and not cmath.isfinite(value):
        raise Undecided("not finite")
    return value


def _evaluate(tree: Node, point: Mapping[str, Value]) -> Value:
    kind = tree[0]
    if kind == "number":
        number: Fraction = tree[1]
        return number
    if kind == "constant":
        return _CONSTANTS[tree[1]]
    if kind == "name":
        return point[tree[1]]
    if kind == "call":
        return complex(_FUNCTIONS[tree[1]](_inexact(_evaluate(tree[2], point))))
    left = _evaluate(tree[1], point)
    if kind == "neg":
        return -left
    if kind == "abs":
        return abs(left) if isinstance(left, Fraction) else complex(abs(left))
    if kind == "!":
        if isinstance(left, Fraction) and left > _HOPELESS_FACTORIAL:
            raise Hopeless("a factorial is too large to write down")
        return Fraction(math.factorial(_small_natural(left)))
    right = _evaluate(tree[2], point)
    if kind == "^":
        return _raise_to(left, right)
    if kind == "root":
        return _root(left, right)
    if kind == "binom":
        return Fraction(math.comb(_small_natural(left), _small_natural(right)))
    return _arithmetic(kind, left, right)


def _arithmetic(kind: str, left: Value, right: Value) -> Value:
    if kind == "/" and right == 0:
        if isinstance(right, Fraction):
            raise Hopeless("division by zero")
        raise Undecided("division by a rounded zero")
    if not (isinstance(left, Fraction) and isinstance(right, Fraction)):
        left, right = _inexact(left), _inexact(right)
    value = _OPERATIONS[kind](left, right)
    if isinstance(value, Fraction) and _bits(value) > _MAX_BITS:
        raise Undecided("a number grows too large")
    return value  # type: ignore[no-any-return]


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


def _small_natural(value: Value) -> int:
    if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= 500:
        raise Undecided("needed: a natural number up to 500")
    return value.numerator


def _raise_to(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            return _integer_power(base, exponent.numerator)
        if base < 0 and exponent.denominator != 2:
            raise Undecided("a real or a complex root")
        root = _exact_root(base, exponent.denominator)
        if root is not None:
            return _integer_power(root, exponent.numerator)
    if base == 0:
        raise Undecided("a power of zero")
    return complex(_inexact(base) ** _inexact(exponent))


def _integer_power(base: Fraction, exponent: int) -> Fraction:
    if base == 0 and exponent < 0:
        raise Hopeless("division by zero")
    if abs(base) not in (0, 1):
        bits = abs(exponent) * max(_bits(base) - 1, 1)
        if bits > _HOPELESS_BITS:
            raise Hopeless("a power is too large to write down")
        if bits > _MAX_BITS:
            raise Undecided("a power is too large")
    elif exponent.bit_length() > _MAX_BITS:
        raise Undecided("an exponent is too large")
    return base**exponent


def _root(radicand: Value, degree: Value) -> Value:
    """The principal root, but the real one of a negative number where the degree is odd."""
    count = _small_natural(degree)
    if count == 0:
        raise Hopeless("a root of degree zero")
    if isinstance(radicand, Fraction) and radicand < 0 and count % 2:
        return -_raise_to(-radicand, Fraction(1, count))
    return _raise_to(radicand, Fraction(1, count))


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
