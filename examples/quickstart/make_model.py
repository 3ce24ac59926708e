"""Builds the quick start's model folder: a tiny Qwen3 (0.41M parameters) after its warm start.

    python -m examples.quickstart.make_model --task reverse --out DIR

Deterministic: one thread and one seed give the same bytes each time, so a build system may cache
them. The seed stays 0 whatever the seed of the RL run: all runs start from one model.
"""

import argparse
import os
import random
import sys
import time
from itertools import islice
from pathlib import Path

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from examples.quickstart.evaluate import accuracy
from examples.quickstart.task import TASKS, questions
from examples.quickstart.tokenizer import build_tokenizer
from examples.quickstart.warm_start import WARM_STARTS, WarmStart, warm_start

PROGRESS_EVERY = 50


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A randomly initialised two-layer Qwen3 in float32."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def show_progress(task: str, step: int, total: int, loss: float, started: float) -> None:
    if step % PROGRESS_EVERY == 0 or step == total:
        seconds = time.monotonic() - started
        print(f"{task}: step {step}/{total}  loss {loss:.3f}  {seconds:.0f} s", flush=True)


def make_model(task: str, out: Path, recipe: WarmStart, seed: int = 0) -> None:
    """Writes config, weights and tokenizer of the warm-started model to the folder `out`."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    logging.disable_progress_bar()  # ours is the only progress line
    tokenizer = build_tokenizer()
    model = build_model(tokenizer, seed)
    started = time.monotonic()
    for step, loss in warm_start(model, tokenizer, task, recipe, seed):
        show_progress(task, step, recipe.steps, loss, started)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    held_out = list(islice(questions(task, random.Random(seed), held_out=True), 512))
    sampled = accuracy(model, tokenizer, held_out, do_sample=True)
    print(f"{task}: {sampled:.3f} of {len(held_out)} held-out questions right (sampled)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=sorted(TASKS), default="reverse")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        sys.exit("set OMP_NUM_THREADS=1: more threads change the order of sums, and so the bytes")
    make_model(args.task, args.out, WARM_STARTS[args.task], args.seed)


if __name__ == "__main__":
    main()
