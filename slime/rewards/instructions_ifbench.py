"""Checks of IFBench (Pyatkin et al., 2025, arXiv:2507.02833) that need no word lists, by id.

Each takes the response and the published arguments of the instruction.
"""

import re
import string
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from slime.rewards.instructions_ifeval import sentences_of, words_of

_VOWELS = frozenset("aeiou")
_MARKS = (".", ",", "!", "?", ";", ":")
_SMALL = frozenset(
    re.findall(r"\w+", "a an and as at but by for from in nor of on or so the to up with yet")
)


def _word_count_range(text: str, min_words: int, max_words: int) -> bool:
    return min_words <= len(words_of(text)) <= max_words


def _unique_words(text: str, N: int) -> bool:
    return len({word.lower() for word in words_of(text)}) >= N


def _numbers(text: str, N: int) -> bool:
    return len(re.findall(r"\b\d+(?:[.,]\d+)*\b", text)) == N


def _keyword_in_sentence(text: str, word: str, N: int) -> bool:
    sentences = sentences_of(text)
    return len(sentences) >= N and word.lower() in map(str.lower, words_of(sentences[N - 1]))


def _word_repeats(text: str, small_n: int) -> bool:
    return max(Counter(_lower_words(text)).values(), default=0) <= small_n


def _no_consecutive(text: str) -> bool:
    """No two words in a row start with the same letter."""
    return all(a[0] != b[0] for a, b in pairwise(_lower_words(text)))


def _alphabet(text: str) -> bool:
    """Each word starts with the next letter of the alphabet, `a` after `z`."""
    letters = [string.ascii_lowercase.find(word[0]) for word in _lower_words(text)]
    return min(letters, default=-1) >= 0 and all(b == (a + 1) % 26 for a, b in pairwise(letters))


def _prime_lengths(text: str) -> bool:
    return all(
        length > 1 and all(length % d for d in range(2, int(length**0.5) + 1))
        for length in map(len, words_of(text))
    )


def _consonant_clusters(text: str) -> bool:
    """Every word has two consonants in a row."""
    return all(re.search(r"[b-df-hj-np-tv-z]{2}", word) for word in _lower_words(text))


def _vowels(text: str) -> bool:
    """At most three different vowels occur."""
    return len(_VOWELS & set(text.lower())) <= 3


def _palindromes(text: str) -> bool:
    """At least ten different palindromes of five or more letters."""
    return len({w for w in _lower_words(text) if len(w) >= 5 and w == w[::-1]}) >= 10


def _last_first(text: str) -> bool:
    """The last word of each sentence is the first of the next one."""
    ends = [(words[0], words[-1]) for words in map(_lower_words, sentences_of(text)) if words]
    return all(before[1] == after[0] for before, after in pairwise(ends))


def _paragraph_last_first(text: str) -> bool:
    """Each paragraph ends with the word it starts with."""
    paragraphs = [words for words in map(_lower_words, re.split(r"\n\s*\n", text)) if words]
    return all(words[0] == words[-1] for words in paragraphs)


def _title_case(text: str) -> bool:
    return all(w[0].isupper() or w.lower() in _SMALL for w in words_of(text) if w[0].isalpha())


def _one_word_per_line(text: str) -> bool:
    return all(len(line.split()) <= 1 for line in text.splitlines())


def _lower_words(text: str) -> list[str]:
    return [word.lower() for word in words_of(text)]


IFBENCH_CHECKS: dict[str, Callable[..., bool]] = {
    "count:numbers": _numbers,
    "count:punctuation": lambda text: all(mark in text for mark in _MARKS),
    "count:unique_word_count": _unique_words,
    "count:word_count_range": _word_count_range,
    "format:newline": _one_word_per_line,
    "format:no_whitespace": lambda text: not re.search(r"\s", text),
    "format:title_case": _title_case,
    "sentence:keyword": _keyword_in_sentence,
    "words:alphabet": _alphabet,
    "words:consonants": _consonant_clusters,
    "words:last_first": _last_first,
    "words:no_consecutive": _no_consecutive,
    "words:palindrome": _palindromes,
    "words:paragraph_last_first": _paragraph_last_first,
    "words:prime_lengths": _prime_lengths,
    "words:repeats": _word_repeats,
    "words:vowel": _vowels,
}
