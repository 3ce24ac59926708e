"""The configuration that trackers record."""

from pathlib import Path

import pytest

from slime.arguments.facts import gather_facts
from slime.arguments.raw import read_raw
from slime.arguments.resolve import resolve
from slime.tracking.run_config import run_config

WORDS = "--advantage-estimator ppo --lr 1e-4 --wandb-key secret --save ckpt --num-rollout 1"


def test_the_critics_own_options_are_apart_and_keys_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3", "vocab_size": 10}')
    (tmp_path / "roles.yaml").write_text("megatron: [{role: critic, overrides: {lr: 1e-3}}]")
    words = [*WORDS.split(), "--megatron-config-path", "roles.yaml", "--hf-checkpoint", "."]
    raw, problems = read_raw(words)
    assert problems == []
    args = resolve(raw, gather_facts(raw)[0])
    config = run_config(args)
    assert (config["lr"], config["critic/lr"]) == (1e-4, 1e-3)
    assert config["critic/save"] == str(tmp_path / "ckpt" / "critic")
    assert config["critic/loss_type"] == "value_loss"
    assert "critic/gamma" not in config
    assert not any("secret" in str(value) for value in config.values())
