"""The quick start's work as one plain loop (transformers + torch): the compute baseline.

    ./bazelw run //benchmarks:plain_loop -- --model DIR --data DIR

Same model, prompts, group sizes, loss and optimizer as examples/quickstart/config.yaml, and nothing
around it: no servers, no weight transfer, one process. Prints seconds per rollout of its halves.
"""

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from examples.quickstart.evaluate import chat_prompts, generate
from examples.quickstart.task import Question, is_correct

PROMPTS, SAMPLES_PER_PROMPT = 16, 8
LEARNING_RATE, EPS_CLIP, CLIP_GRAD = 2e-4, 0.2, 1.0
FIRST_MEASURED = 2  # the first rollouts pay for allocations


@dataclass
class Rollout:
    """One rollout's outcome; seconds of wall time, tokens without padding."""

    reward: float
    generate_seconds: float
    train_seconds: float
    total_seconds: float
    generated_tokens: int
    trained_tokens: int


def read_questions(path: Path) -> list[Question]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Question(row["input"][0]["content"], row["label"]) for row in rows]


def group_advantages(rewards: Tensor) -> Tensor:
    """GRPO advantages (arXiv:2402.03300), one per sample; `rewards` is `[prompts, samples]`."""
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    return (centred / (rewards.std(dim=1, keepdim=True) + 1e-6)).flatten()


def token_log_probs(
    model: PreTrainedModel, inputs: dict[str, Tensor], completions: Tensor
) -> Tensor:
    """Log-probabilities of `completions` `[batch, new]` under the model, at temperature 1."""
    kept = completions.shape[1] + 1
    logits = model(**inputs, logits_to_keep=kept).logits[:, :-1]
    return torch.log_softmax(logits, dim=-1).gather(-1, completions.unsqueeze(-1)).squeeze(-1)


def train_step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    inputs: dict[str, Tensor],
    completions: Tensor,
    mask: Tensor,
    advantages: Tensor,
) -> None:
    """One clipped policy-gradient step, averaged over the tokens where `mask` is 1."""
    model.train()
    log_probs = token_log_probs(model, inputs, completions)
    ratio = (log_probs - log_probs.detach()).exp()  # the old policy is this one
    clipped = ratio.clamp(1 - EPS_CLIP, 1 + EPS_CLIP)
    gain = torch.minimum(ratio * advantages[:, None], clipped * advantages[:, None])
    loss = -(gain * mask).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_GRAD)
    optimizer.step()


def run_rollout(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer,
    asked: list[Question],
) -> Rollout:
    """Generates, grades and trains on the questions `asked` (each group member listed)."""
    started = time.perf_counter()
    prompts = tokenizer(
        chat_prompts(tokenizer, asked), return_tensors="pt", padding=True, add_special_tokens=False
    )
    generating = time.perf_counter()
    completions = generate(model, dict(prompts), do_sample=True)
    generated = time.perf_counter()
    ends = (completions == tokenizer.eos_token_id).long()
    mask = (ends.cumsum(dim=1) - ends == 0).float()  # up to and including the first end token
    texts = tokenizer.batch_decode(completions, skip_special_tokens=True)
    rewards = torch.tensor(
        [float(is_correct(text, q.answer)) for text, q in zip(texts, asked, strict=True)]
    )
    attention_mask = torch.cat([prompts["attention_mask"], mask.long()], dim=1)
    inputs = {
        "input_ids": torch.cat([prompts["input_ids"], completions], dim=1),
        "attention_mask": attention_mask,
        "position_ids": (attention_mask.cumsum(dim=1) - 1).clamp(min=0),
    }
    advantages = group_advantages(rewards.view(-1, SAMPLES_PER_PROMPT))
    training = time.perf_counter()
    train_step(model, optimizer, inputs, completions, mask, advantages)
    ended = time.perf_counter()
    return Rollout(
        reward=rewards.mean().item(),
        generate_seconds=generated - generating,
        train_seconds=ended - training,
        total_seconds=ended - started,
        generated_tokens=int(mask.sum()),
        trained_tokens=int(attention_mask.sum()),
    )


def run_loop(model_dir: Path, train_file: Path, rollouts: int, seed: int) -> list[Rollout]:
    """`rollouts` rollouts on random prompts of `train_file`, from the model in `model_dir` on."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    pool = read_questions(train_file)
    results = []
    for _ in range(rollouts):
        asked = [q for q in rng.sample(pool, PROMPTS) for _ in range(SAMPLES_PER_PROMPT)]
        results.append(run_rollout(model, tokenizer, optimizer, asked))
    return results


def summarize(results: list[Rollout]) -> dict[str, float]:
    """Median seconds per rollout, and the mean reward of the first and the last five rollouts."""
    measured = [asdict(result) for result in results[FIRST_MEASURED:] or results]
    medians = {
        key: median(row[key] for row in measured) for key in measured[0] if key.endswith("_seconds")
    }
    rewards = [result.reward for result in results]
    return medians | {"first_reward": fmean(rewards[:5]), "last_reward": fmean(rewards[-5:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a folder by make_model.py")
    parser.add_argument("--data", type=Path, required=True, help="a folder by make_data.py")
    parser.add_argument("--rollouts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results = run_loop(args.model, args.data / "train.jsonl", args.rollouts, args.seed)
    print(json.dumps(summarize(results)))


if __name__ == "__main__":
    main()
