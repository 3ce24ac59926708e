"""A prompt set: rows of a file made into samples, filtered by length, shuffled by seed and
epoch.
"""

import json
import logging
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from slime.arguments.errors import ConfigError, Problem, did_you_mean
from slime.data.media import media_of, processor_inputs, with_media
from slime.data.prompt_file import Row, read_file, read_rows
from slime.samples.sample import Sample

__all__ = ["Dataset", "Tokenizer", "filter_long_prompt", "read_file"]
logger = logging.getLogger(__name__)


class Tokenizer(Protocol):
    """What is used of a Hugging Face tokenizer; it is handed in, never loaded here."""

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> Any:
        """`input_ids`, one list per text."""

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """The text of a conversation (with `tokenize=False`)."""


class Dataset:
    """Prompts as samples (prompt, label, metadata); `samples` is in the order of the present
    epoch.
    """

    def __init__(
        self,
        path: str,
        tokenizer: Tokenizer | None,
        processor: Any,
        max_length: int | None,
        *,
        prompt_key: str = "text",
        multimodal_keys: dict[str, str] | None = None,
        label_key: str | None = None,
        tool_key: str | None = None,
        metadata_key: str = "metadata",
        seed: int = 42,
        apply_chat_template: bool = False,
        apply_chat_template_kwargs: dict[str, Any] | None = None,
        source_name: str | None = None,
    ) -> None:
        """Read `path` (see `read_file` for slices).

        Args:
            path: jsonl or parquet.
            tokenizer: Needed for the chat template and for `max_length`.
            processor: Of multimodal models: it counts the tokens of prompts with media.
            max_length: Longest prompt in tokens; longer ones are left out, with a warning that
                counts them.
            prompt_key: Key of the prompt: text, or a list of messages.
            multimodal_keys: Kind of medium (image, video, audio) -> key of one or a list of them;
                the marks `<image>`, `<video>`, `<audio>` in the messages are filled with them.
            label_key: Key of the label.
            tool_key: Key of the tools; rows without it have none.
            metadata_key: Key of the metadata; rows without it have none.
            seed: Of the shuffles.
            apply_chat_template: Make the prompt's text with the tokenizer's template (a plain text
                counts as one user message).
            apply_chat_template_kwargs: For the template.
            source_name: Goes into the metadata of samples whose row does not say it itself.

        Raises:
            ConfigError: Rows lack a key, no prompt remains, or a tokenizer is needed and not there.
        """
        if tokenizer is None and (apply_chat_template or max_length is not None):
            message = "the chat template and the prompt length need a tokenizer"
            raise ConfigError([Problem(path, None, message, "give --hf-checkpoint")])
        self.seed = seed
        self.epoch_id = 0
        rows = read_rows(path)
        _check_keys(rows, [key for key in (prompt_key, label_key) if key])
        samples = []
        for place, row in rows:
            sample = _make_sample(place, row, prompt_key, label_key, tool_key, metadata_key)
            if source_name is not None:
                sample.metadata = {"source_name": source_name} | sample.metadata
            if apply_chat_template and isinstance(sample.prompt, str):
                sample.prompt = [{"role": "user", "content": sample.prompt}]
            if multimodal_keys:
                sample.multimodal_inputs = media_of(row, multimodal_keys)
                sample.prompt = with_media(place, sample.prompt, sample.multimodal_inputs)
            if apply_chat_template:
                template_kwargs = apply_chat_template_kwargs or {}
                sample.prompt = _render(tokenizer, sample, template_kwargs)
            samples.append(sample)
        self.origin_samples = filter_long_prompt(samples, tokenizer, processor, max_length)
        if not self.origin_samples:
            message = f"no prompt is left of {len(samples)}"
            raise ConfigError(
                [Problem(path, None, message, "check the slice and the prompt length")]
            )
        self.samples = self.origin_samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def shuffle(self, new_epoch_id: int) -> None:
        """Put the samples into the order of an epoch, a function of seed and epoch alone."""
        order = np.random.default_rng([self.seed, new_epoch_id]).permutation(
            len(self.origin_samples)
        )
        self.samples = [self.origin_samples[i] for i in order]
        self.epoch_id = new_epoch_id

    def start_epoch(self, epoch_id: int, *, shuffle: bool) -> None:
        """Put the samples into the order of an epoch: shuffled, or as they lie in the file."""
        if shuffle:
            self.shuffle(epoch_id)


def filter_long_prompt(
    origin_samples: list[Sample], tokenizer: Any, processor: Any, max_length: int | None
) -> list[Sample]:
    """Samples whose prompt has at most `max_length` tokens (all for None); how many went is
    logged.
    """
    if max_length is None or not origin_samples:
        return origin_samples
    texts = [
        sample.prompt
        if isinstance(sample.prompt, str)
        else _render(tokenizer, sample, sample.apply_chat_template_kwargs)
        for sample in origin_samples
    ]
    lengths = [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    for number, sample in enumerate(origin_samples):
        if sample.multimodal_inputs and processor is not None:  # a medium is many tokens
            inputs = processor(text=[texts[number]], **processor_inputs(sample.multimodal_inputs))
            lengths[number] = len(inputs["input_ids"][0])
    kept = [s for s, length in zip(origin_samples, lengths, strict=True) if length <= max_length]
    if len(kept) < len(origin_samples):
        logger.warning(
            "%d of %d prompts have more than %d tokens and are left out",
            len(origin_samples) - len(kept),
            len(origin_samples),
            max_length,
        )
    return kept


def _check_keys(rows: list[tuple[str, Row]], keys: list[str]) -> None:
    """The first row that lacks each key is reported, with what it has instead."""
    problems = []
    for key in keys:
        missing = next(((place, row) for place, row in rows if key not in row), None)
        if missing is not None:
            place, row = missing
            hint = did_you_mean(key, row) or f"it has: {', '.join(row)}"
            problems.append(Problem(place, None, f"has no key {key!r}", hint))
    if problems:
        raise ConfigError(problems)


def _make_sample(
    place: str,
    row: Row,
    prompt_key: str,
    label_key: str | None,
    tool_key: str | None,
    metadata_key: str,
) -> Sample:
    metadata = row.get(metadata_key) or {}
    if not isinstance(metadata, dict):
        message = f"{metadata_key!r} is a {type(metadata).__name__}, no object"
        raise ConfigError([Problem(place, None, message)])
    tools = row.get(tool_key) if tool_key else None
    if tools is not None:
        metadata = metadata | {"tools": json.loads(tools) if isinstance(tools, str) else tools}
    if isinstance(row.get("source_name"), str):
        metadata = {"source_name": row["source_name"]} | metadata
    label = row[label_key] if label_key else None
    prompt = row[prompt_key]
    if not isinstance(prompt, str | list) or not prompt:  # files too long to be looked through
        message = f"{prompt_key!r} is {prompt!r}: a prompt is a text, or a list of messages"
        raise ConfigError([Problem(place, None, message)])
    return Sample(prompt=prompt, label=label, metadata=metadata)


def _render(tokenizer: Any, sample: Sample, template_kwargs: dict[str, Any]) -> str:
    text: str = tokenizer.apply_chat_template(
        sample.prompt,
        tools=sample.metadata.get("tools"),
        tokenize=False,
        add_generation_prompt=True,
        **template_kwargs,
    )
    return text
