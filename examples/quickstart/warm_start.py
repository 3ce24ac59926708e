"""Supervised warm start: teaches the task, and on purpose a bad habit for RL to remove.

Most demonstrations of the fast task are wrong: the answer is "idk", or an echo of the question. So
the model *can* reverse letters but mostly does not; RL has something to fix within 60 steps. The
longer task (`sort`) is the honest one: clean demonstrations, simply stopped early.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from examples.quickstart.evaluate import chat_prompts
from examples.quickstart.task import Question, questions

BATCH_SIZE = 64
LR_WARMUP_STEPS = 50
IGNORE = -100  # the label that Hugging Face models leave out of the loss


@dataclass(frozen=True)
class WarmStart:
    """How a task is demonstrated: `bad_habit_share` of the demonstrations are wrong on purpose.

    The learning rate falls linearly to `final_lr_share` of its peak.
    """

    steps: int
    bad_habit_share: float
    final_lr_share: float
    learning_rate: float = 1e-3


WARM_STARTS = {
    "reverse": WarmStart(steps=600, bad_habit_share=0.65, final_lr_share=0.05),
    "sort": WarmStart(steps=100, bad_habit_share=0.0, final_lr_share=1.0),
}


def demonstrated_answer(question: Question, bad_habit_share: float, rng: random.Random) -> str:
    if rng.random() >= bad_habit_share:
        return question.answer
    return "idk" if rng.random() < 0.8 else question.text[:6]


def make_batch(
    tokenizer: PreTrainedTokenizerBase, asked: list[Question], answers: list[str]
) -> dict[str, torch.Tensor]:
    """`input_ids`, `attention_mask` and `labels`, each `[batch, longest]`, padded on the right."""
    ended = [answer + tokenizer.eos_token for answer in answers]
    prompts = tokenizer(chat_prompts(tokenizer, asked), add_special_tokens=False)["input_ids"]
    targets = tokenizer(ended, add_special_tokens=False)["input_ids"]
    longest = max(len(p) + len(t) for p, t in zip(prompts, targets, strict=True))
    input_ids = torch.full((len(asked), longest), tokenizer.pad_token_id)
    labels = torch.full((len(asked), longest), IGNORE)
    attention_mask = torch.zeros_like(input_ids)
    for row, (prompt, target) in enumerate(zip(prompts, targets, strict=True)):
        end = len(prompt) + len(target)
        input_ids[row, :end] = torch.tensor(prompt + target)
        labels[row, len(prompt) : end] = torch.tensor(target)
        attention_mask[row, :end] = 1
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def lr_factor(step: int, recipe: WarmStart) -> float:
    """Factor on the learning rate of step `step`, counted from 0."""
    decay = 1.0 - (1.0 - recipe.final_lr_share) * (step + 1) / recipe.steps
    return min(1.0, (step + 1) / LR_WARMUP_STEPS) * decay


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: str,
    recipe: WarmStart,
    seed: int = 0,
) -> Iterator[tuple[int, float]]:
    """Trains `model` in place and yields (steps done, loss) after every step."""
    rng = random.Random(1000 + seed)
    stream = questions(task, rng, held_out=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, recipe))
    model.train()
    for step in range(1, recipe.steps + 1):
        asked = list(islice(stream, BATCH_SIZE))
        answers = [demonstrated_answer(q, recipe.bad_habit_share, rng) for q in asked]
        loss = model(**make_batch(tokenizer, asked, answers)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield step, loss.item()
