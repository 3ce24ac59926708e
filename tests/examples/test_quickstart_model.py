"""The quick start's tokenizer, tiny model and warm start."""

import json
import random
import string
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.quickstart.evaluate import accuracy, chat_prompts
from examples.quickstart.make_model import make_model
from examples.quickstart.task import Question, questions
from examples.quickstart.tokenizer import build_tokenizer
from examples.quickstart.warm_start import (
    IGNORE,
    WARM_STARTS,
    demonstrated_answer,
    lr_factor,
    make_batch,
)

SHORT = replace(WARM_STARTS["reverse"], steps=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("model")
    make_model("reverse", out, SHORT)
    return out


def test_the_same_seed_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    make_model("reverse", tmp_path / "again", SHORT)
    make_model("reverse", tmp_path / "other", SHORT, seed=1)
    names = sorted(path.name for path in folder.iterdir())
    assert "model.safetensors" in names and "tokenizer.json" in names
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    weights = (tmp_path / "other" / "model.safetensors").read_bytes()
    assert weights != (folder / "model.safetensors").read_bytes()


def test_the_folder_loads_as_the_promised_model(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["vocab_size"] == len(tokenizer) == 100
    assert model.dtype == torch.float32
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(0.41e6, rel=0.01)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_the_saved_tokenizer_round_trips_every_character(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = string.ascii_letters + string.digits + string.punctuation + " \n  x"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


def test_chat_template_marks_every_turn(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    prompt = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    assert prompt == "<|user|>hi<|end|><|assistant|>"
    assert whole == prompt + "yo<|end|>"
    ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
    assert len(ids) == 2 + len("hi") + 2 + len("yo")  # each mark is one token


def test_the_loss_sees_the_answer_and_its_end_only() -> None:
    tokenizer = build_tokenizer()
    asked = [Question("reverse abcd=", "dcba"), Question("reverse wxyz=", "zyxw")]
    batch = make_batch(tokenizer, asked, ["dcba", "idk"])
    labels = batch["labels"]
    seen = [tokenizer.decode(row[row != IGNORE]) for row in labels]
    assert seen == ["dcba<|end|>", "idk<|end|>"]
    prompt_length = len(
        tokenizer(chat_prompts(tokenizer, asked)[0], add_special_tokens=False)["input_ids"]
    )
    assert (labels[:, :prompt_length] == IGNORE).all()
    assert batch["attention_mask"].sum(dim=1).tolist() == [prompt_length + 5, prompt_length + 4]


def test_two_thirds_of_the_demonstrations_are_bad() -> None:
    rng = random.Random(0)
    question = Question("reverse abcd=", "dcba")
    answers = [demonstrated_answer(question, 0.65, rng) for _ in range(20_000)]
    shares = {a: answers.count(a) / len(answers) for a in set(answers)}
    assert shares == pytest.approx({"dcba": 0.35, "idk": 0.52, "revers": 0.13}, abs=0.01)


def test_learning_rate_warms_up_and_decays() -> None:
    recipe = WARM_STARTS["reverse"]
    factors = [lr_factor(step, recipe) for step in range(recipe.steps)]
    assert factors[0] == pytest.approx(1 / 50, rel=0.01)
    assert factors.index(max(factors)) == 49
    assert factors[-1] == pytest.approx(recipe.final_lr_share)


def test_an_untrained_model_answers_nothing_right(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    asked = list(islice(questions("reverse", random.Random(0), held_out=True), 16))
    assert accuracy(model, AutoTokenizer.from_pretrained(folder), asked, do_sample=True) == 0.0
