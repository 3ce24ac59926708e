"""A tokenizer of one token per character, arguments of a data source, and files of prompts."""

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class CharTokenizer:
    """One token per character; messages become `<role>content` and `<assistant>` asks for the
    answer.
    """

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> dict[str, list[list[int]]]:
        return {"input_ids": [[ord(character) for character in one] for one in text]}

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> str:
        tools = f"[{len(kwargs['tools'])} tools]" if kwargs.get("tools") else ""
        prefix = kwargs.get("prefix", "")
        text = "".join(f"<{m['role']}>{m['content']}" for m in conversation)
        return prefix + tools + text + ("<assistant>" if kwargs["add_generation_prompt"] else "")


@pytest.fixture
def tokenizer() -> CharTokenizer:
    return CharTokenizer()


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., str]:
    def write(rows: list[Any], name: str = "prompts.jsonl") -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


@pytest.fixture
def source_args(tmp_path: Path, write_jsonl: Callable[..., str]) -> Callable[..., Namespace]:
    """`source_args(num_prompts, **changes)`: prompts p0, p1, ... and a checkpoint folder."""

    def build(num_prompts: int, **changes: Any) -> Namespace:
        rows = [{"input": f"p{i}", "answer": str(i)} for i in range(num_prompts)]
        base = {
            "prompt_data": write_jsonl(rows),
            "rollout_global_dataset": True,
            "rollout_max_prompt_len": None,
            "apply_chat_template": False,
            "apply_chat_template_kwargs": {},
            "input_key": "input",
            "label_key": "answer",
            "tool_key": "tools",
            "metadata_key": "metadata",
            "multimodal_keys": None,
            "rollout_seed": 42,
            "rollout_shuffle": False,
            "n_samples_per_prompt": 2,
            "rollout_batch_size": 4,
            "buffer_filter_path": None,
            "hf_checkpoint": None,
            "start_rollout_id": None,
            "save": str(tmp_path / "ckpt"),
            "load": str(tmp_path / "ckpt"),
        }
        return Namespace(**base | changes)

    return build
