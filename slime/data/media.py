"""Images, videos and audio of a prompt: from the row's keys to the parts of its messages."""

import re
from typing import Any

from slime.arguments.errors import ConfigError, Problem
from slime.data.prompt_file import Row

_PROCESSOR_NAMES = {"image": "images", "video": "videos", "audio": "audio"}


def media_of(row: Row, keys: dict[str, str]) -> dict[str, list[Any]] | None:
    """Kind -> media of the row, one or a list of them under each key; None where it has none."""
    media = {}
    for kind, key in keys.items():
        value = row.get(key)
        if value is not None:
            media[kind] = value if isinstance(value, list) else [value]
    return media or None


def with_media(place: str, prompt: Any, media: dict[str, list[Any]] | None) -> Any:
    """The prompt's messages with `<image>` and the like replaced by the media, in their order.

    A message's text becomes a list of parts, as chat templates take it: {"type": "text", ...} and
    {"type": "image", "image": ...}. Messages that are lists of parts already, and prompts that are
    plain text (the template's own marks are in it), stay as they are.

    Raises:
        ConfigError: The number of marks is not that of the media.
    """
    if media is None or isinstance(prompt, str):
        return prompt
    texts = [message.get("content") or "" for message in prompt]  # a call of a tool has none
    if any(isinstance(text, list) for text in texts):
        return prompt
    remaining = {kind: list(items) for kind, items in media.items()}
    mark = re.compile("<(" + "|".join(media) + ")>")
    counts = dict.fromkeys(media, 0)
    for text in texts:
        for kind in mark.findall(text):
            counts[kind] += 1
    problems = [
        Problem(place, None, f"has {len(items)} of kind {kind}, but {counts[kind]} marks <{kind}>")
        for kind, items in media.items()
        if counts[kind] != len(items)
    ]
    if problems:
        raise ConfigError(problems)
    return [
        message | {"content": _parts(mark, text, remaining)} if mark.search(text) else message
        for message, text in zip(prompt, texts, strict=True)
    ]


def processor_inputs(media: dict[str, Any]) -> dict[str, Any]:
    """The media under the names by which a Hugging Face processor takes them."""
    return {_PROCESSOR_NAMES.get(kind, kind): items for kind, items in media.items()}


def _parts(
    mark: re.Pattern[str], content: str, remaining: dict[str, list[Any]]
) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for number, piece in enumerate(mark.split(content)):
        if number % 2:  # what stands between two texts is the kind of a mark
            parts.append({"type": piece, piece: remaining[piece].pop(0)})
        elif piece:
            parts.append({"type": "text", "text": piece})
    return parts
