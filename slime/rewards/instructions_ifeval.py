"""The checks of IFEval (Zhou et al., 2023, arXiv:2311.07911), by their published ids.

Each takes the response and the published arguments of the instruction.
"""

import json
import re
from collections.abc import Callable

from slime.rewards.languages import is_in_language

_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]+[\"')\]]*(?:\s+|$)")
_TITLE = re.compile(r"<<([^\n<>]+)>>")
_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def words_of(text: str) -> list[str]:
    """Words without punctuation; an apostrophe or hyphen inside belongs to its word."""
    return re.findall(r"\w+(?:['\u2019-]\w+)*", text)


def sentences_of(text: str) -> list[str]:
    """Sentences: what ends with `.`, `!` or `?` before a space, and what is left."""
    return [part.strip() for part in _SENTENCE_END.split(text) if words_of(part)]


def holds(count: int, relation: str | None, bound: int) -> bool:
    """Whether `count` is `less than`, or `at least` (the default), `bound`.

    Raises:
        ValueError: The relation is neither.
    """
    if relation == "less than":
        return count < bound
    if relation in (None, "at least"):
        return count >= bound
    raise ValueError(f"relation {relation!r} is neither 'less than' nor 'at least'")


def _has_keywords(text: str, keywords: list[str]) -> bool:
    return all(word.lower() in text.lower() for word in keywords)


def _keyword_frequency(text: str, keyword: str, frequency: int, relation: str = "at least") -> bool:
    return holds(text.lower().count(keyword.strip().lower()), relation, frequency)


def _has_no_forbidden(text: str, forbidden_words: list[str]) -> bool:
    return not any(
        re.search(rf"\b{re.escape(word)}\b", text, flags=re.IGNORECASE) for word in forbidden_words
    )


def _letter_frequency(
    text: str, letter: str, let_frequency: int, let_relation: str = "at least"
) -> bool:
    return holds(text.lower().count(letter.lower()), let_relation, let_frequency)


def _num_sentences(text: str, num_sentences: int, relation: str = "at least") -> bool:
    return holds(len(sentences_of(text)), relation, num_sentences)


def _num_words(text: str, num_words: int, relation: str = "at least") -> bool:
    return holds(len(words_of(text)), relation, num_words)


def _num_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Paragraphs between lines `***`; only the first and the last may be empty."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    if not all(parts[1:-1]):
        return False
    return sum(bool(part) for part in parts) == num_paragraphs


def _nth_paragraph_first_word(
    text: str, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    words = words_of(paragraphs[nth_paragraph - 1])
    return bool(words) and words[0].lower() == first_word.lower()


def _num_placeholders(text: str, num_placeholders: int) -> bool:
    return len(re.findall(r"\[[^\[\]]*\]", text)) >= num_placeholders


def _has_postscript(text: str, postscript_marker: str = "P.S.") -> bool:
    letters = [re.escape(letter) for letter in postscript_marker.replace(".", "").replace(" ", "")]
    return re.search(r"\b" + r"\.?\s?".join(letters) + r"\b", text, flags=re.IGNORECASE) is not None


def _num_bullets(text: str, num_bullets: int) -> bool:
    bullets = re.findall(r"^[ \t]*(?:\*(?!\*)|-)[ \t]*\S", text, flags=re.MULTILINE)
    return len(bullets) == num_bullets


def _num_highlights(text: str, num_highlights: int) -> bool:
    highlights = re.findall(r"\*\*([^\n*]+)\*\*|\*([^\n*]+)\*", text)
    return sum(bool("".join(found).strip()) for found in highlights) >= num_highlights


def _multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(rf"{re.escape(section_spliter)}\s?\d+", text)) >= num_sections


def _is_json(text: str) -> bool:
    inner = re.sub(r"^```(?:json)?|```$", "", text.strip(), flags=re.IGNORECASE).strip()
    try:
        json.loads(inner)
    except (ValueError, RecursionError):
        return False
    return True


def _two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]


def _repeats_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def _ends_with(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def _is_quoted(text: str) -> bool:
    stripped = text.strip()
    return len(stripped) > 1 and stripped[0] == stripped[-1] == '"'


def _capital_words(text: str, capital_frequency: int, capital_relation: str = "at least") -> bool:
    return holds(sum(w.isupper() for w in words_of(text)), capital_relation, capital_frequency)


IFEVAL_CHECKS: dict[str, Callable[..., bool]] = {
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": lambda text: text.isupper() and is_in_language(text, "en"),
    "change_case:english_lowercase": lambda text: text.islower() and is_in_language(text, "en"),
    "combination:repeat_prompt": _repeats_prompt,
    "combination:two_responses": _two_responses,
    "detectable_content:number_placeholders": _num_placeholders,
    "detectable_content:postscript": _has_postscript,
    "detectable_format:constrained_response": lambda text: any(a in text for a in _ANSWERS),
    "detectable_format:json_format": _is_json,
    "detectable_format:multiple_sections": _multiple_sections,
    "detectable_format:number_bullet_lists": _num_bullets,
    "detectable_format:number_highlighted_sections": _num_highlights,
    "detectable_format:title": lambda text: any(map(str.strip, re.findall(_TITLE, text))),
    "keywords:existence": _has_keywords,
    "keywords:forbidden_words": _has_no_forbidden,
    "keywords:frequency": _keyword_frequency,
    "keywords:letter_frequency": _letter_frequency,
    "language:response_language": lambda text, language: is_in_language(text, language),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph_first_word,
    "length_constraints:number_paragraphs": _num_paragraphs,
    "length_constraints:number_sentences": _num_sentences,
    "length_constraints:number_words": _num_words,
    "punctuation:no_comma": lambda text: "," not in text,
    "startend:end_checker": _ends_with,
    "startend:quotation": _is_quoted,
}
