"""What SGLang reports with a response (`meta_info`), read into plain Python and numpy."""

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np

Span = tuple[str, int, int]
"""(weight version, start, end): output tokens [start, end) were made with that version."""


def output_tokens_and_log_probs(meta_info: dict[str, Any]) -> tuple[list[int], list[float]] | None:
    """Token ids and log-probs of `output_token_logprobs` ([[logprob, id, text], ...]); None when
    absent.
    """
    entries = meta_info.get("output_token_logprobs")
    if entries is None:
        return None
    return [entry[1] for entry in entries], [entry[0] for entry in entries]


def finish_type(meta_info: dict[str, Any]) -> str | None:
    """`stop`, `length` or `abort`; None while the response is still being made."""
    reason = meta_info.get("finish_reason")
    if reason is None:
        return None
    return str(reason["type"] if isinstance(reason, dict) else reason)


def weight_version_spans(meta_info: dict[str, Any], num_output_tokens: int) -> list[Span]:
    """Which weight version made which output tokens, in order and without empty spans.

    `weight_versions` (an update arrived while the response was being made) wins over
    `weight_version`, which then stands for all `num_output_tokens` tokens.
    """
    if spans := meta_info.get("weight_versions"):
        read = [(str(span["version"]), int(span["start"]), int(span["end"])) for span in spans]
        return [span for span in read if span[1] < span[2]]
    version = meta_info.get("weight_version")
    if version is None or num_output_tokens == 0:
        return []
    return [(str(version), 0, num_output_tokens)]


def decode_int32_meta_array(
    meta_info: dict[str, Any], keys: str | Iterable[str]
) -> np.ndarray | None:
    """The first of `keys` present in `meta_info` as a flat int32 array; None when none is there.

    An engine sends such arrays as base64 of little-endian int32 bytes; lists are taken too.
    """
    for key in [keys] if isinstance(keys, str) else keys:
        value = meta_info.get(key)
        if value is None:
            continue
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value), dtype="<i4").astype(np.int32)
        return np.asarray(value, dtype=np.int32).reshape(-1)
    return None
