"""Loading a tokenizer, and prompts to token ids."""

from typing import Any

from slime.samples.sample import Sample


def load_tokenizer(name_or_path: str, **kwargs: Any) -> Any:
    """The Hugging Face tokenizer of a model folder; `kwargs` go to `from_pretrained`."""
    from transformers import (
        AutoTokenizer,
    )  # seconds to import; not every user of this room needs it

    return AutoTokenizer.from_pretrained(name_or_path, **kwargs)


def encode_prompt(tokenizer: Any, sample: Sample) -> list[int]:
    """Token ids of `sample.prompt`: a text as it is, a list of messages by the chat template."""
    if isinstance(sample.prompt, str):
        return list(tokenizer.encode(sample.prompt, add_special_tokens=False))
    text = tokenizer.apply_chat_template(
        sample.prompt,
        tools=sample.metadata.get("tools"),
        tokenize=False,
        add_generation_prompt=True,
        **sample.apply_chat_template_kwargs,
    )
    return list(tokenizer.encode(text, add_special_tokens=False))
