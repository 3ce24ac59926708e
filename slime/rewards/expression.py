"""Arithmetic and algebra in plain or LaTeX notation, parsed into a tree of a few operations.

Nothing is executed and every bound ends in `Undecided`, so a hostile answer costs microseconds. A
node is a tuple: its kind, then children, numbers or names (see `slime.rewards.evaluation`).
"""

import re
from fractions import Fraction
from typing import Any

Node = tuple[Any, ...]

_MAX_TOKENS = 400
_MAX_DEPTH = 40
_MAX_DIGITS = 2000

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d[\d,]*\.?\d*|\.\d+)"
    r"|(?P<name>\\[a-zA-Z]+|[a-zA-Z](?:_(?:\{\w{1,8}\}|\w))?)"
    r"|(?P<op>\*\*|[-+*/^(){}\[\]!_|]))"
)
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?")
_COMMANDS = re.compile(r"\\[a-zA-Z]+")
FUNCTIONS = frozenset(
    _COMMANDS.findall(
        r"\sin \cos \tan \sec \csc \cot \arcsin \arccos \arctan \sinh \cosh \tanh"
        r"\ln \log \lg \exp"
    )
)
CONSTANTS = frozenset({"\\pi", "e", "i"})
_GREEK = frozenset(
    _COMMANDS.findall(
        r"\alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \lambda \mu \nu \xi"
        r"\rho \sigma \tau \phi \varphi \chi \psi \omega \Gamma \Delta \Theta \Lambda \Sigma \Phi"
        r"\Psi \Omega \ell"
    )
)
_TIMES = frozenset({"\\cdot", "\\times", "*"})
_DIVIDE = frozenset({"/", "\\div"})
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_HALF: Node = ("number", Fraction(1, 2))


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
        self._num_open_bars = 0

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
            elif self._at_factor():
                tree = ("*", tree, self._power(depth))
            else:
                break
        return tree

    def _at_factor(self) -> bool:
        """Whether the next token is a factor by juxtaposition."""
        kind, token = self._tokens[self._position]
        if kind == "number":
            raise Undecided("a number after a factor")  # `2 3` is not 6
        return kind == "name" or token in _CLOSING or (token == "|" and not self._num_open_bars)

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
        if token == "|":
            return self._absolute(depth)
        if token == "\\frac":
            return ("/", self._argument(depth), self._argument(depth))
        if token == "\\binom":
            return ("binom", self._argument(depth), self._argument(depth))
        if token == "\\sqrt":
            return self._root(depth)
        if token in FUNCTIONS:
            return self._call(token, depth)
        if token in CONSTANTS:
            return ("constant", token)
        if kind == "name" and (token[0] != "\\" or token in _GREEK):
            return ("name", token.replace("{", "").replace("}", ""))
        raise Undecided(f"{token!r} is unknown")

    def _until(self, closing: str, depth: int) -> Node:
        tree = self.sum(depth + 1)
        if self._take()[1] != closing:
            raise Undecided(f"{closing!r} is missing")
        return tree

    def _absolute(self, depth: int) -> Node:
        """`|x|`; a bar inside another pair of bars is taken as the closing one."""
        self._num_open_bars += 1
        tree = self._until("|", depth)
        self._num_open_bars -= 1
        return ("abs", tree)

    def _root(self, depth: int) -> Node:
        if self.peek() != "[":
            return ("^", self._argument(depth), _HALF)
        self._take()
        degree = self._until("]", depth)
        return ("root", self._argument(depth), degree)

    def _call(self, function: str, depth: int) -> Node:
        r"""`\sin x`, `\sin 2x`, `\sin^2 x`, `\log_2 8`; `\sin^{-1}` and `\sin(x)^2` are unclear."""
        base = exponent = None
        if function == "\\log" and self.peek() == "_":
            self._take()
            base = self._argument(depth)
        if self.peek() in ("^", "**"):
            self._take()
            exponent = self._argument(depth)
            if exponent[0] != "number":
                raise Undecided("perhaps the inverse function")
        if self.peek() in _CLOSING:
            argument = self._atom(depth + 1)
            if self.peek() in ("^", "**", "!"):
                raise Undecided("a power of the argument, or of the function")
        else:
            argument = self._bare_argument(depth + 1)
        tree: Node = ("call", function, argument)
        if base is not None:
            tree = ("/", ("call", "\\ln", argument), ("call", "\\ln", base))
        return tree if exponent is None else ("^", tree, exponent)

    def _bare_argument(self, depth: int) -> Node:
        r"""What a function without brackets applies to: `\sin 2x\cos y` is sin(2x) cos(y)."""
        tree = self._signed(depth)
        while (token := self.peek()) is not None and token not in FUNCTIONS:
            kind = self._tokens[self._position][0]
            if kind != "name" or token in _TIMES or token in _DIVIDE:
                break
            tree = ("*", tree, self._power(depth))
        return tree

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
        return self._atom(depth + 1)


def _number(token: str) -> Fraction:
    if "," in token:
        if not _THOUSANDS.fullmatch(token):
            raise Undecided(f"{token!r} is no number")
        token = token.replace(",", "")
    if len(token) > _MAX_DIGITS:
        raise Undecided("a number is too long")
    return Fraction(token.rstrip("."))
