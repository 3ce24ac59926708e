"""Accuracy of a model folder on held-out questions, by plain `transformers` (an independent check).

python -m examples.quickstart.evaluate --model RUN_DIR/hf
"""

import argparse
import random
from collections.abc import Sequence
from itertools import islice

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from examples.quickstart.task import TASKS, Question, is_correct, questions

MAX_NEW_TOKENS = 12


def chat_prompts(tokenizer: PreTrainedTokenizerBase, asked: Sequence[Question]) -> list[str]:
    """The questions in the chat template, up to where the assistant begins to speak."""
    conversations = [[{"role": "user", "content": question.text}] for question in asked]
    prompts = tokenizer.apply_chat_template(
        conversations, tokenize=False, add_generation_prompt=True
    )
    return list(prompts)


@torch.no_grad()
def generate(
    model: PreTrainedModel, inputs: dict[str, torch.Tensor], do_sample: bool
) -> torch.Tensor:
    """Completions, `[batch, <= MAX_NEW_TOKENS]`, padded on the right after the end token."""
    sampling = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if do_sample else {}
    sequences = model.eval().generate(
        **inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=do_sample, **sampling
    )
    return sequences[:, inputs["input_ids"].shape[1] :]


def accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    asked: Sequence[Question],
    do_sample: bool,
) -> float:
    """Share of `asked` answered exactly, one completion each."""
    inputs = tokenizer(
        chat_prompts(tokenizer, asked), return_tensors="pt", padding=True, add_special_tokens=False
    )
    completions = generate(model, dict(inputs), do_sample)
    texts = tokenizer.batch_decode(completions, skip_special_tokens=True)
    right = [is_correct(text, q.answer) for text, q in zip(texts, asked, strict=True)]
    return sum(right) / len(right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a Hugging Face model folder")
    parser.add_argument("--task", choices=sorted(TASKS), default="reverse")
    parser.add_argument("--num-questions", type=int, default=512)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    asked = list(islice(questions(args.task, random.Random(0), held_out=True), args.num_questions))
    torch.manual_seed(0)
    for name, do_sample in (("sampled", True), ("greedy", False)):
        print(f"{name} accuracy: {accuracy(model, tokenizer, asked, do_sample):.3f}")


if __name__ == "__main__":
    main()
