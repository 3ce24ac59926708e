"""Which language a text is in: by script, and for the Latin script by its most frequent words."""

import re
from collections import Counter

# First and last character of the scripts that tell a language, or a few, apart.
_SCRIPTS: dict[str, tuple[str, str]] = {
    "greek": ("\u0370", "\u03ff"),
    "cyrillic": ("\u0400", "\u04ff"),
    "hebrew": ("\u0590", "\u05ff"),
    "arabic": ("\u0600", "\u06ff"),
    "devanagari": ("\u0900", "\u097f"),
    "bengali": ("\u0980", "\u09ff"),
    "gurmukhi": ("\u0a00", "\u0a7f"),
    "gujarati": ("\u0a80", "\u0aff"),
    "tamil": ("\u0b80", "\u0bff"),
    "telugu": ("\u0c00", "\u0c7f"),
    "kannada": ("\u0c80", "\u0cff"),
    "malayalam": ("\u0d00", "\u0d7f"),
    "thai": ("\u0e00", "\u0e7f"),
    "kana": ("\u3040", "\u30ff"),
    "han": ("\u4e00", "\u9fff"),
    "hangul": ("\uac00", "\ud7a3"),
    "latin": ("a", "\u024f"),
}
_SCRIPT_OF: dict[str, str] = {
    **dict.fromkeys(["ru", "uk", "bg"], "cyrillic"),
    **dict.fromkeys(["ar", "fa", "ur"], "arabic"),
    **dict.fromkeys(["hi", "mr", "ne"], "devanagari"),
    **{"el": "greek", "he": "hebrew", "bn": "bengali", "pa": "gurmukhi", "gu": "gujarati"},
    **{"ta": "tamil", "te": "telugu", "kn": "kannada", "ml": "malayalam", "th": "thai"},
    **{"ja": "kana", "zh": "han", "ko": "hangul"},
}
# Letters that one language of a shared script has and the others lack.
_OWN_LETTERS = {
    "uk": "\u0456\u0457\u0454\u0491",
    "ru": "\u044b\u044d\u0451",
    "fa": "\u067e\u0686\u06af",
    "ur": "\u0679\u0688\u06d2\u06ba",
}
_FREQUENT: dict[str, str] = {
    "en": "the of and to in is that it for with as was are this you be have not",
    "de": "der die und das ist nicht ein eine zu den mit von auf im sich auch ich wir",
    "fr": "le les des est et une dans que pour qui pas sur au du avec nous vous je",
    "es": "el los las una que por con para es en del como pero su lo y se",
    "it": "il che di per una sono con non del della gli alla anche nel come piu",
    "pt": "o os uma que para com nao por em da do as mais dos se como",
    "nl": "het een van en is dat niet op te voor met zijn aan ook er",
    "vi": "va la cua cho mot cac nhung trong co khong nguoi duoc voi",
    "fi": "ja on ei se ett\u00e4 oli mutta kun niin my\u00f6s ovat h\u00e4n joka",
    "sv": "och att det som en p\u00e5 \u00e4r av f\u00f6r med den till inte har",
    "sw": "na ya wa kwa ni katika za la kuwa hii yake kama",
    "pl": "i w nie na si\u0119 jest to z do \u017ce jak ale przez",
    "tr": "ve bir bu da de i\u00e7in ile \u00e7ok olarak daha gibi",
}
_WORD = re.compile(r"[^\W\d_]+")


def is_in_language(text: str, language: str) -> bool:
    """Whether the text is in the language of this ISO 639-1 code; too little evidence counts as
    yes.

    Raises:
        ValueError: The language is not known here.
    """
    code = language.lower().split("-")[0]
    if code not in _SCRIPT_OF and code not in _FREQUENT:
        known = ", ".join(sorted([*_SCRIPT_OF, *_FREQUENT]))
        raise ValueError(f"language {language!r} is unknown; known: {known}")
    scripts = _script_counts(text)
    if not scripts:
        return True
    if code in _SCRIPT_OF:
        return _is_in_script(text.lower(), code, scripts)
    return scripts.most_common(1)[0][0] == "latin" and _has_frequent_words(text.lower(), code)


def _script_counts(text: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for character, number in Counter(text.lower()).items():
        if character.isalpha():
            for name, (first, last) in _SCRIPTS.items():
                if first <= character <= last:
                    counts[name] += number
    return counts


def _is_in_script(text: str, code: str, scripts: Counter[str]) -> bool:
    total, script = sum(scripts.values()), _SCRIPT_OF[code]
    if code == "ja":  # Chinese characters between the kana
        return scripts["kana"] > 0 and scripts["kana"] + scripts["han"] > total / 2
    if script == "han" and scripts["kana"] > 0.05 * total:
        return False
    others = [o for o in _OWN_LETTERS if o != code and _SCRIPT_OF[o] == script]
    mine = sum(text.count(letter) for letter in _OWN_LETTERS.get(code, ""))
    theirs = max((sum(map(text.count, _OWN_LETTERS[o])) for o in others), default=0)
    return scripts[script] > total / 2 and mine >= theirs


def _has_frequent_words(text: str, code: str) -> bool:
    words = Counter(_WORD.findall(text))
    counts = {
        language: sum(words[word] for word in frequent.split())
        for language, frequent in _FREQUENT.items()
    }
    return counts[code] == max(counts.values())
