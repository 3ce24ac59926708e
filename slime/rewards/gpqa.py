"""Multiple-choice answers: which letter a response settles on."""

import re
import string
from collections.abc import Iterable, Sequence
from typing import Any

from slime.rewards.boxes import extract_boxed_answer
from slime.rewards.f1 import normalize_answer

DEFAULT_VALID_LETTERS = list(string.ascii_uppercase[:8])


def compute_gpqa_reward(
    response: str, label: str | int, metadata: dict[str, Any] | None = None
) -> float:
    """1.0 when the response's last stated choice is the label, else 0.0.

    Args:
        response: The whole response.
        label: The right letter, the right choice's text, or its index (the last two need choices).
        metadata: `choices` (list, or letter -> text), `valid_letters`, `correct_letter` (wins over
            the label).
    """
    metadata = metadata or {}
    choices = _choices(metadata.get("choices"))
    letters = [str(letter).upper() for letter in metadata.get("valid_letters") or choices]
    letters = letters or DEFAULT_VALID_LETTERS
    truth = _letter_of(metadata.get("correct_letter") or label, choices, letters)
    if truth is None:
        return 0.0
    return float(_stated_letter(response, choices, letters) == truth)


def _choices(choices: Any) -> dict[str, str]:
    if isinstance(choices, dict):
        return {str(letter).upper(): str(text) for letter, text in choices.items()}
    if isinstance(choices, Sequence) and not isinstance(choices, str):
        return dict(zip(string.ascii_uppercase, map(str, choices), strict=False))
    return {}


def _letter_of(answer: Any, choices: dict[str, str], letters: Sequence[str]) -> str | None:
    """The letter that an answer names: itself in any case and bracketing, an index, or a choice's
    text.
    """
    if isinstance(answer, int) and not isinstance(answer, bool):
        return letters[answer] if 0 <= answer < len(letters) else None
    text = str(answer).strip()
    bare = text.strip("()[]{}.: ").upper()
    if bare in letters:
        return bare
    matching = [k for k, v in choices.items() if normalize_answer(v) == normalize_answer(text)]
    return matching[0] if len(matching) == 1 else None


def _stated_letter(response: str, choices: dict[str, str], letters: Sequence[str]) -> str | None:
    text = response.rsplit("</think>", 1)[-1]
    boxed = extract_boxed_answer(text)
    if boxed is not None:
        inner = re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r"\1", boxed)
        return _letter_of(inner, choices, letters)
    return _last_match(text, letters)


def _last_match(text: str, letters: Iterable[str]) -> str | None:
    """The last letter of the most explicit kind of statement that occurs.

    A letter stands alone: the `I` of `is` or the article `A` before a word is none.
    """
    one = f"([{''.join(letters)}])"
    alone = rf"[(\[]?\b{one}\b[)\]*]*"
    patterns = (
        rf"(?:[Aa]nswer|ANSWER|[Cc]hoice|[Oo]ption)(?:is|[\s:=*])*{alone}(?!\s+[a-z])",
        rf"\({one}\)",
        rf"^[^\w\n]*{one}[^\w\n]*$",
        rf"(?<![\w']){one}[.):]?[ \t]*$",
    )
    for pattern in patterns:
        if matches := re.findall(pattern, text, flags=re.MULTILINE):
            return str(matches[-1])
    return None
