"""Loading a tokenizer, and prompts to token ids."""

from typing import Any

from slime.arguments.errors import ConfigError, Problem
from slime.samples.sample import Sample


def load_tokenizer(name_or_path: str, **kwargs: Any) -> Any:
    """The Hugging Face tokenizer of a model folder; `kwargs` go to `from_pretrained`."""
    from transformers import AutoTokenizer  # takes seconds; not every user of this room needs it

    return AutoTokenizer.from_pretrained(name_or_path, **kwargs)


def load_processor(name_or_path: str, **kwargs: Any) -> Any:
    """The Hugging Face processor of a multimodal model's folder; `kwargs` go to `from_pretrained`.

    Raises:
        ConfigError: the folder holds none.
    """
    from transformers import AutoProcessor, ProcessorMixin

    reason = "it is a model of texts alone"
    try:
        processor = AutoProcessor.from_pretrained(name_or_path, **kwargs)
        if isinstance(processor, ProcessorMixin):  # else it is the tokenizer
            return processor
    except (OSError, ValueError) as error:
        reason = str(error)
    remedy = "give a multimodal model, or leave out --multimodal-keys"
    message = f"has no processor for media: {reason}"
    raise ConfigError([Problem("--hf-checkpoint", name_or_path, message, remedy)])


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
