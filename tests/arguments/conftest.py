"""A model directory without a model, a file of prompts, and the shortest command line that is
right.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.errors import ConfigError, Problem
from slime.arguments.parse import parse_args

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 128,
    "intermediate_size": 384,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "vocab_size": 100,
}


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the same answers on a machine with GPUs
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    (directory / "tokenizer.json").write_text("{}")
    (directory / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return directory


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "train.jsonl"
    file.write_text('{"input": "1+1=", "label": "2"}\n' * 10)
    return file


@pytest.fixture
def argv(model: Path, prompts: Path) -> list[str]:
    """A right command line; later words win, so tests append."""
    words = f"--hf-checkpoint {model} --prompt-data {prompts} --label-key label --rm-type math"
    words += " --rollout-batch-size 16 --n-samples-per-prompt 8 --num-rollout 60 --lr 1e-4"
    return [*words.split(), "--rollout-max-response-len", "12"]


@pytest.fixture
def problems_of(argv: list[str]) -> Callable[..., list[Problem]]:
    """The problems when these words are appended to a right command line."""

    def collect(*words: str) -> list[Problem]:
        try:
            parse_args(argv=[*argv, *words])
        except ConfigError as error:
            return error.problems
        return []

    return collect
