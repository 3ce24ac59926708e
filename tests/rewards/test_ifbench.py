"""Instruction checks: one response that follows and one that does not, per published id."""

import time
from typing import Any

import pytest

from slime.rewards.errors import UngradableError
from slime.rewards.ifbench import CHECKS, compute_ifbench_reward
from slime.rewards.languages import is_in_language

FREQUENCY = {"keyword": "cat", "frequency": 2, "relation": "at least"}
LETTERS = {"letter": "e", "let_frequency": 3, "let_relation": "less than"}
PARAGRAPH = {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"}
PALINDROMES = "level radar civic kayak refer rotor madam tenet sagas stats"

# id, arguments, a response that follows, one that does not
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["Red", "fox"]}, "A red FOX.", "A red dog."),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "Concatenate!", "A Cat!"),
    ("keywords:frequency", FREQUENCY, "cat, Cat", "cat"),
    ("keywords:letter_frequency", LETTERS, "See", "Seen here"),
    ("language:response_language", {"language": "de"}, "Das ist ein Haus", "This is a house"),
    ("length_constraints:number_sentences", {"num_sentences": 2}, "One. Two!", "Only 1.5 is."),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "a b", "a b c"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n\nb"),
    ("length_constraints:nth_paragraph_first_word", PARAGRAPH, "A\n\nThen b", "A\n\nNow then"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b c]", "[a] b"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "x\nP. S. y", "x\nPoSt"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "x P.P.S y", "x P.S. y"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n - b", "* a\n**b**"),
    ("detectable_format:constrained_response", {}, "My answer is no.", "No."),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        "*a b* and **c**",
        "* * and **c**",
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1 a SECTION 2 b",
        "SECTION one SECTION 2",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', "{a: 1}"),
    ("detectable_format:title", {}, "<<A title>>\ntext", "<< >> <title>"),
    ("combination:two_responses", {}, "a\n******\nb", "a ****** a"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say x."}, "say x. Yes", "Yes. Say x."),
    ("startend:end_checker", {"end_phrase": "the end"}, 'Done. "The end"', "The end is near"),
    ("startend:quotation", {}, '"quoted"', '"half'),
    ("change_case:capital_word_frequency", {"capital_frequency": 2}, "A BIG dog", "A big Dog"),
    ("change_case:english_capital", {}, "THIS IS THE ONE", "This IS"),
    ("change_case:english_lowercase", {}, "this is the one", "this is The one"),
    ("punctuation:no_comma", {}, "a; b", "a, b"),
    ("count:word_count_range", {"min_words": 2, "max_words": 3}, "a b c", "a"),
    ("count:unique_word_count", {"N": 3}, "a b c a", "a b A b"),
    ("count:numbers", {"N": 2}, "3 and 1,000.5", "3 and x2"),
    ("count:punctuation", {}, "a. b, c! d? e; f:", "a. b, c! d? e;"),
    ("format:newline", {}, "a\nb", "a b\nc"),
    ("format:no_whitespace", {}, "a-b", "a b"),
    ("format:title_case", {}, "The Lord of the Rings", "The lord of Rings"),
    ("sentence:keyword", {"word": "fox", "N": 2}, "A dog. The Fox runs.", "A fox. The dog."),
    ("words:alphabet", {}, "Young zebras and birds", "A cat bit"),
    ("words:consonants", {}, "Strong cards", "Strong idea"),
    ("words:last_first", {}, "I see you. You see me.", "I see you. We see me."),
    ("words:no_consecutive", {}, "a big cat", "a big bat"),
    ("words:palindrome", {}, PALINDROMES, PALINDROMES[6:]),
    ("words:paragraph_last_first", {}, "Go and go.\n\nYes, yes", "Go now.\n\nYes, yes"),
    ("words:prime_lengths", {}, "an owl likes", "an idea"),
    ("words:repeats", {"small_n": 2}, "a b a", "a b a A"),
    ("words:vowel", {}, "a bee ill", "a bee ill of us"),
]


def reward(response: str, *instructions: tuple[str, dict[str, Any]]) -> float:
    metadata = {
        "instruction_id_list": [name for name, _ in instructions],
        "kwargs": [{**arguments, "unused": None} for _, arguments in instructions],
    }
    return compute_ifbench_reward(response, None, metadata)


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), CASES, ids=lambda v: str(v)[:30])
def test_every_id(name: str, arguments: dict[str, Any], good: str, bad: str) -> None:
    assert reward(good, (name, arguments)) == 1.0
    assert reward(bad, (name, arguments)) == 0.0
    assert reward("", (name, arguments)) == 0.0


def test_the_cases_cover_every_known_id() -> None:
    assert {name for name, *_ in CASES} == set(CHECKS)
    assert sum(name in CHECKS for name in CHECKS) >= 25 + 17


def test_all_instructions_must_hold() -> None:
    both = ("punctuation:no_comma", {}), ("count:numbers", {"N": 1})
    assert reward("1 b", *both) == 1.0
    assert reward("1, b", *both) == reward("b", *both) == 0.0


def test_the_thought_is_not_the_answer() -> None:
    assert reward("<think>a, b</think> c", ("punctuation:no_comma", {})) == 1.0


def test_instructions_may_come_as_the_label() -> None:
    label = '{"instruction_id_list": ["count:numbers"], "kwargs": [{"N": 1}]}'
    assert compute_ifbench_reward("7", label) == 1.0
    assert compute_ifbench_reward("7", {"instruction_id_list": ["punctuation:no_comma"]}) == 1.0


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "needs instruction_id_list"),
        ({"instruction_id_list": []}, "needs instruction_id_list"),
        (
            {"instruction_id_list": ["words:none"]},
            "unknown instruction 'words:none'; known: words:",
        ),
        ({"instruction_id_list": ["count:numbers"], "kwargs": [{}, {}]}, "2 kwargs for 1"),
        ({"instruction_id_list": ["count:numbers"]}, "count:numbers with {}"),
        (
            {"instruction_id_list": ["count:numbers"], "kwargs": [{"N": 1, "M": 2}]},
            "count:numbers with",
        ),
        (
            {
                "instruction_id_list": ["length_constraints:number_words"],
                "kwargs": [{"num_words": 1, "relation": "exactly"}],
            },
            "'exactly' is neither",
        ),
        (
            {
                "instruction_id_list": ["language:response_language"],
                "kwargs": [{"language": "tlh"}],
            },
            "language 'tlh' is unknown",
        ),
    ],
)
def test_samples_that_cannot_be_graded_say_why(metadata: dict, message: str) -> None:
    with pytest.raises(UngradableError, match=message):
        compute_ifbench_reward("some answer", "label", metadata)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "This is the house that I have"),
        ("fr", "C'est la maison que nous avons dans le village"),
        ("es", "Esta es la casa que tenemos en el pueblo"),
        ("ru", "Это дом, который мы построили"),
        ("uk", "Це дім, який ми збудували та їмо"),
        ("ar", "هذا هو البيت"),
        ("hi", "यह घर है"),
        ("zh", "这是一座房子"),
        ("ja", "これは家です"),
        ("ko", "이것은 집입니다"),
        ("th", "นี่คือบ้าน"),
    ],
)
def test_languages(language: str, text: str) -> None:
    assert is_in_language(text, language)
    others = {"en", "fr", "es", "ru", "uk", "ar", "hi", "zh", "ja", "ko", "th"} - {language}
    assert [other for other in sorted(others) if is_in_language(text, other)] == []


def test_texts_without_letters_have_no_language() -> None:
    assert is_in_language("42 !", "ru")


LONG = [" " * 50_000, "\n" * 50_000, "." * 50_000 + "a", "**" + "a" * 50_000, "<<" + "a" * 50_000]
LONG += ["[" * 50_000, "a " * 25_000, "- " * 25_000, "1." * 25_000, "\n \n" * 15_000, "*" * 50_000]


@pytest.mark.parametrize("text", LONG, ids=lambda text: repr(text[:4]))
def test_long_responses_take_linear_time(text: str) -> None:
    started = time.process_time()
    for name, arguments, _, _ in CASES:
        reward(f"x{text}x", (name, arguments))
    assert time.process_time() - started < 5.0
