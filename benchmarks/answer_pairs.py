"""Pairs of mathematical answers with a known verdict, by hand and by rule.

A verdict is about mathematics: equal numbers, functions, sets, intervals, matrices. Layout, units
after a number and a name before `=` are no mathematics.
"""

import random
from fractions import Fraction

Pair = tuple[str, str, bool]
"""Answer, truth, whether they are equal."""

_NUMBERS = r"""
2^{10} | 1024
0 | 0
0.5 | \frac{1}{2}
\dfrac12 | 1/2
\frac{3}{4} | \tfrac34
1,000 | 1000
1{,}000 | 1000
12,345,678 | 12345678
$12$ | 12.
5.0 | 5
-\frac{1}{2} | \frac{-1}{2}
-\frac{1}{2} | \frac{1}{-2}
50\% | 50
50\% | 0.5
0.5 | 50\%
12.5\% | \frac{1}{8}
90^\circ | 90
45° | 45^{\circ}
\$5 | 5
5 \text{ cm} | 5
10 meters | 10
16\text{ cm}^2 | 16
3\frac{1}{2} | \frac{7}{2}
3\frac12 | 3.5
-2\frac{3}{4} | -2.75
7 3/4 | 7.75
1.5e3 | 1500
1.5 \times 10^{3} | 1500
(-1)^{1000001} | -1
\frac{\frac{1}{2}}{3} | \frac{1}{6}
5! | 120
\binom{5}{2} | 10
3:4 | 3/4
\frac{22}{7} | 3\frac17
1 \div 4 | 0.25
6 \cdot 7 | 42
--3 | 3
.5 | 0.5
007 | 7
!5 | 7 | no
0.333 | 1/3 | no
0.333333 | \frac{1}{3} | no
3.14159265358 | \pi | no
3.1415927 | \pi | no
2 3 | 23 | no
2 3 | 6 | no
2 3 | 5 | no
10 000 | 10000
1,2 | 12 | no
-5 | 5 | no
\frac{1}{0} | 1 | no
100000000000000000000 | 100000000000000000001 | no
\frac{1}{3} | \frac{1}{4} | no
50\% | 5 | no
50\% | 0.05 | no
3\frac{1}{2} | \frac{3}{2} | no
10^{-3} | 0.0001 | no
1.5e3 | 150 | no
5! | 125 | no
\pi/10^{15} | e/10^{15} | no
True | 1 | no
"""

_ROOTS_AND_FUNCTIONS = r"""
\sqrt{8} | 2\sqrt{2}
\frac{1}{\sqrt{2}} | \frac{\sqrt{2}}{2}
\sqrt[3]{27} | 3
\sqrt[3]{-8} | -2
8^{2/3} | 4
sqrt(8) | 2*sqrt(2)
\sqrt{3}/3 | 1/\sqrt 3
\sqrt{5+2\sqrt{6}} | \sqrt{2}+\sqrt{3}
\frac{1+\sqrt5}{2} | \frac{2}{\sqrt{5}-1}
2\pi | \pi \times 2
2π | 2\pi
\sin(\pi) | 0
\sin\frac{\pi}{6} | \frac{1}{2}
\cos 60^\circ | \cos 60
\log_2 8 | 3
\log_{10} 1000 | 3
\ln e^2 | 2
\arctan 1 | \frac{\pi}{4}
\tan^{-1} 1 | \frac{\pi}{4}
e^{i\pi} | -1
e^{2\ln 3} | 9
\sin 2x | 2\sin x\cos x
\sin^2 x+\cos^2 x | 1
(x+1)^2 | x^2+2x+1
a b | b \cdot a
\frac{n(n+1)}{2} | \frac{n^2+n}{2}
x^{-1} | \frac{1}{x}
\frac{x^2-1}{x-1} | x+1
\sqrt{x^2} | |x|
|{-3}| | 3
\left|-\frac12\right| | 0.5
2^{x+1} | 2 \cdot 2^x
a_1 + a_2 | a_2 + a_1
\alpha\beta | \beta\alpha
\frac{e^x+e^{-x}}{2} | \cosh x
\log(x^2) | 2\log |x|
\int_0^1 x\,dx | \frac12
\sum_{k=1}^{10} k | 55
\lfloor 3.7 \rfloor | 3
2x | 2 x
3+4i | 4i+3
(1+i)^2 | 2i
\frac{5}{1+2i} | 1-2i
x^2 | x^3 | no
\sqrt{8} | 2\sqrt{3} | no
2\pi | \pi^2 | no
\sin x | \cos x | no
(x+1)^2 | x^2+1 | no
\sqrt{2}+\sqrt{3} | \sqrt{5} | no
\ln 2x | 2\ln x | no
3+4i | 3-4i | no
x+y | x-y | no
\frac{a}{b} | \frac{b}{a} | no
e^{x} | x^{e} | no
a_1 | a_2 | no
\log_2 8 | \log_8 2 | no
2\sqrt{3} | \sqrt{6} | no
x | y | no
\sqrt{x^2} | -x | no
"""

_SETS_AND_TUPLES = r"""
(1, \frac{1}{2}) | (1,0.5)
\left( 3, 4 \right) | (3,4)
(1,2) | 1, 2
\{2, 1\} | \{1,2\}
\left\{1, 2, 3\right\} | \{3,2,1\}
1, 2 | 2, 1
1, 2 | \{2,1\}
1 \text{ and } 2 | 1, 2
-1 \text{ or } 3 | 3, -1
x = 1, x = 2 | 1, 2
x=1 \text{ or } x=2 | 1,2
\pm 2 | 2, -2
\pm 2 | -2, 2
1 \pm \sqrt{2} | 1+\sqrt2, 1-\sqrt2
(0, 1] | (0,1]
[0, \infty) | [0,+\infty)
(-\infty, 2] | (-∞,2]
(-\infty,1)\cup(1,\infty) | (1,\infty)\cup(-\infty,1)
x \in [1,2] | [1,2]
\emptyset | \varnothing
\begin{pmatrix}1&2\\3&4\end{pmatrix} | \begin{bmatrix}1&2\\3&4\end{bmatrix}
\begin{pmatrix}1/2\\0.25\end{pmatrix} | \begin{pmatrix}\frac12\\\frac14\end{pmatrix}
(\sqrt{4}, 3) | (2, 3)
(1,1000) | (1,1{,}000)
\{1,1,2\} | \{1,2\}
(x+1)(x-1) | x^2-1
(x, y) = (1, 2) | (1,2)
(1,2) | (x,y)=(1,3) | no
(1+2)(3) | 9
(0, 1] | [0, 1] | no
(1,2) | (2,1) | no
(1,2) | (1,2,3) | no
(1,2) | \{1,2\} | no
\{1,2\} | \{1,1\} | no
1, 2 | 1, 3 | no
\pm 2 | 2 | no
[0, \infty) | (0, \infty) | no
(-\infty, 2] | (-\infty, 2) | no
\infty | -\infty | no
\infty | 100 | no
\log\infty^4 | \log_8 2 | no
10^\infty | 1 | no
\emptyset | 0 | no
(0,1)\cup(2,3) | (0,3) | no
\begin{pmatrix}1&2\\3&4\end{pmatrix} | \begin{pmatrix}1&3\\2&4\end{pmatrix} | no
\begin{pmatrix}1\\2\end{pmatrix} | \begin{pmatrix}1&2\end{pmatrix} | no
1, 2, 3 | 1, 2 | no
"""

_RELATIONS_AND_WORDS = r"""
x = 5 | 5
5 | x=5
f(x) = x^2 | x^2
y = 2x+1 | 2x+1
y=2x+1 | 2x-y+1=0
x+y=1 | 2x+2y=2
x^2+y^2=4 | \frac{x^2}{4}+\frac{y^2}{4}=1
x > 3 | 3 < x
x \geq 3 | 3 \leq x
x > 3 | (3,\infty)
1 < x < 2 | (1,2)
x \le 2 | x \leqslant 2
2x > 6 | x > 3
\theta = \frac{\pi}{2} | \pi/2
\text{Tuesday} | Tuesday
\text{Yes} | yes
\text{(B)} | B
(C) | C
\mathrm{even} | even
\text{no solution} | \text{No solution}
2+3=5 | 5
AB = 5 | 5
P(2) = \frac{1}{2} | 0.5
a_{12} = 7 | 7
100y = 2x+1 | 2x+1 | no
2 = 2\pi | 2\pi | no
y=2x+1 | y=2x-1 | no
x > 3 | x \geq 3 | no
x > 3 | x < 3 | no
-x > 3 | x > -3 | no
x+y=1 | x+y=2 | no
x=5 | 6 | no
stop | post | no
Tuesday | Monday | no
A | B | no
\text{yes} | \text{no} | no
\text{even} | 0 | no
x \neq 1 | x = 1 | no
"""


# Attacks on a grader: none may execute, raise or take long, and none equals anything.
HOSTILE = (
    "9**9**9",
    "9^{9^{9}}",
    "9**9**9**9",
    "__import__('os').system('true')",
    "\\text{__import__('os')}+1",
    "exec('1')",
    "(" * 200 + ")" * 200,
    "1+" * 250 + "1",
    "9" * 500,
    "\\frac" * 100,
    "(((((3!)!)!)!)!)!",
    "x^{" * 100 + "1" + "}" * 100,
    "{1," * 150,
    "\\int_0^{10^{10}} \\sin(x^{x^{x}}) dx",
    "\\sum_{k=1}^{10^{12}} \\frac{1}{k^{k}}",
    "\\prod_{k=1}^{10^{9}} k",
    "10000000! \\cdot \\lfloor 1 \\rfloor",
    "(x+y+z+w)^{300} = 1",
    "\\sqrt{\\sqrt{\\sqrt{x^{x^{x}}}}} < y",
)


def handmade() -> list[Pair]:
    """The pairs above."""
    pairs = []
    for text in (_NUMBERS, _ROOTS_AND_FUNCTIONS, _SETS_AND_TUPLES, _RELATIONS_AND_WORDS):
        for line in text.strip().splitlines():
            given, truth, *verdict = line.split(" | ")
            pairs.append((given, truth, not verdict))
    return pairs


def generated(seed: int, count: int) -> list[Pair]:
    """Numbers, surds, polynomials, tuples and sets, each written in two ways; every other pair is
    wrong by one.
    """
    rng = random.Random(seed)
    kinds = (_fraction, _fraction, _integer, _surd, _polynomial, _tuple, _set, _interval)
    pairs = []
    for place in range(count):
        error = place % 2
        given, truth = kinds[place // 2 % len(kinds)](rng, error)
        pairs.append((given, truth, not error))
    return pairs


def _write(rng: random.Random, value: Fraction) -> str:
    """One of the ways to write a fraction."""
    sign, top, bottom = "-" * (value < 0), abs(value.numerator), value.denominator
    factor = rng.randint(2, 9)
    ways = [
        f"{sign}\\frac{{{top}}}{{{bottom}}}",
        f"{sign}\\dfrac{{{top * factor}}}{{{bottom * factor}}}",
        f"{sign}{top}/{bottom}",
        f"\\frac{{{sign}{top * factor}}}{{{bottom * factor}}}",
    ]
    if bottom == 1:
        ways += [f"{sign}{top}", f"{sign}{top}.0", f"{sign}{top:,}", f"${sign}{top}$"]
    if 1000 % bottom == 0:
        ways.append(f"{float(value)}")
    return rng.choice(ways)


def _rational(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(-200, 200), rng.choice([1, 2, 3, 4, 5, 7, 8, 10, 12]))


def _fraction(rng: random.Random, error: int) -> tuple[str, str]:
    value = _rational(rng)
    return _write(rng, value + error), _write(rng, value)


def _integer(rng: random.Random, error: int) -> tuple[str, str]:
    base, exponent = rng.randint(2, 12), rng.randint(2, 12)
    return f"{base}^{{{exponent}}}", f"{base**exponent + error:,}"


def _surd(rng: random.Random, error: int) -> tuple[str, str]:
    factor, radicand = rng.randint(2, 9), rng.choice([2, 3, 5, 6, 7])
    return f"\\sqrt{{{factor * factor * radicand}}}", f"{factor + error}\\sqrt{{{radicand}}}"


def _polynomial(rng: random.Random, error: int) -> tuple[str, str]:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return f"(x+{a})(x+{b})", f"x^2+{a + b}x+{a * b + error}"


def _tuple(rng: random.Random, error: int) -> tuple[str, str]:
    values = [_rational(rng) for _ in range(rng.randint(2, 4))]
    given = [values[0] + error, *values[1:]]
    left, right = (", ".join(_write(rng, v).strip("$") for v in vs) for vs in (given, values))
    return f"({left})", f"({right})"


def _set(rng: random.Random, error: int) -> tuple[str, str]:
    values = rng.sample(range(-50, 50), rng.randint(2, 5))
    given = rng.sample([max(values) + error, *sorted(values)[:-1]], len(values))
    left, right = (", ".join(map(str, members)) for members in (given, values))
    return f"\\{{{left}\\}}", f"\\{{{right}\\}}"


def _interval(rng: random.Random, error: int) -> tuple[str, str]:
    low = _rational(rng)
    closing = ")" if error else "]"
    ends = _write(rng, low).strip("$"), _write(rng, low).strip("$")
    return f"({ends[0]}, {low + 7}{closing}", f"({ends[1]}, {low + 7}]"
