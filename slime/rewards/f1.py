"""Token F1 of free-form answers, as SQuAD (Rajpurkar et al., 2016) and HotpotQA define it."""

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


def normalize_answer(s: str) -> str:
    """Lower case, without punctuation, articles and repeated spaces."""
    return " ".join(_ARTICLES.sub(" ", s.lower().translate(_PUNCTUATION)).split())


def f1_score(prediction: str | None, ground_truth: str) -> tuple[float, float, float]:
    """(F1, precision, recall) over normalised words; a yes/no answer counts as a whole."""
    if prediction is None:
        return 0.0, 0.0, 0.0
    given, truth = normalize_answer(prediction), normalize_answer(str(ground_truth))
    if given != truth and (given in _CLOSED or truth in _CLOSED):
        return 0.0, 0.0, 0.0
    given_words, truth_words = given.split(), truth.split()
    common = sum((Counter(given_words) & Counter(truth_words)).values())
    if common == 0:
        return 0.0, 0.0, 0.0
    precision, recall = common / len(given_words), common / len(truth_words)
    return 2 * precision * recall / (precision + recall), precision, recall
