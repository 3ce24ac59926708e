"""The boxed answer of a solution."""

import re

_BOXES = ("\\boxed", "\\fbox")
_BRACE = re.compile(r"[{}]")


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


def bare_truth(ground_truth: str | int | float) -> str:
    """A label as a bare answer: boxes taken off, numbers as text."""
    truth = str(ground_truth)
    boxed = extract_boxed_answer(truth)
    return truth if boxed is None else boxed
