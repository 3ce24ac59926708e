"""Exact match: the verifier of tasks whose answer has one spelling."""

_MOST_MARKERS = 8
_LONGEST_MARKER = 40


def exact_match(response: str, label: str | int | float) -> float:
    """1.0 when the response is the label, spaces and end-of-turn markers at the end aside, else
    0.0.
    """
    return float(_without_end_markers(response).strip() == str(label).strip())


def _without_end_markers(text: str) -> str:
    """`dcba<|end|>` -> `dcba`: decoding leaves such markers when special tokens are not skipped."""
    for _ in range(_MOST_MARKERS):
        text = text.rstrip()
        if text.endswith("|>"):
            start = text.rfind("<|", max(0, len(text) - _LONGEST_MARKER))
        elif text.endswith("</s>"):
            start = len(text) - len("</s>")
        else:
            break
        if start < 0:
            break
        text = text[:start]
    return text
