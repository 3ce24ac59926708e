"""Real engines for tests: a tiny random Qwen3 with a character tokenizer, and servers started for
it."""

import contextlib
import json
import string
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import requests
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from slime.arguments import parse_args
from slime.engines.servers import RolloutServers

VOCABULARY = ["<|pad|>", "<|end|>", *string.ascii_lowercase, *string.digits, " "]


def make_model(seed: int, scale: float = 4.0) -> Qwen3ForCausalLM:
    """A random model of 60k parameters; `scale` stretches its weights so that its choices are not
    uniform."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    model = Qwen3ForCausalLM(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale) if parameter.dim() > 1 else None
    return model


def save_model(folder: Path, seed: int = 0) -> Path:
    """Write model and tokenizer as a Hugging Face folder."""
    backend = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(VOCABULARY)}, merges=[]))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(VOCABULARY[:2])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=VOCABULARY[0], eos_token=VOCABULARY[1]
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %} "
    tokenizer.save_pretrained(folder)
    make_model(seed).save_pretrained(folder)
    return folder


def make_args(model: Path, work: Path, *extra: str) -> Namespace:
    """Arguments of a run that only generates: 4 prompts x 4 samples of at most 8 tokens."""
    prompts = work / "prompts.jsonl"
    rows = [{"input": f"say {letter}", "label": letter} for letter in "abcdefgh"]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {
        "hf-checkpoint": model,
        "prompt-data": prompts,
        "label-key": "label",
        "rm-type": "exact",
        "run-dir": work / "run",
        "rollout-batch-size": 4,
        "n-samples-per-prompt": 4,
        "global-batch-size": 16,
        "rollout-max-response-len": 8,
        "num-rollout": 1,
        "actor-num-gpus-per-node": 1,
        "rollout-num-gpus": 1,
        "lr": 1e-4,
    }
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return parse_args(argv=["--debug-rollout-only", "--device", "cpu", *flags, *extra])


@contextlib.contextmanager
def running(args: Namespace) -> Iterator[RolloutServers]:
    """Started servers, stopped again at the end."""
    servers = RolloutServers(args, args.run_dir)
    servers.start(progress=print)
    try:
        yield servers
    finally:
        servers.stop()


def generate(url: str, input_ids: list, max_new_tokens: int = 8, **sampling: float) -> list[dict]:
    """Answers of /generate for one or several prompts."""
    params = {"max_new_tokens": max_new_tokens, "ignore_eos": True, **sampling}
    body = {"input_ids": input_ids, "sampling_params": params, "return_logprob": True}
    response = requests.post(url + "/generate", json=body, timeout=60)
    response.raise_for_status()
    answers = response.json()
    return answers if isinstance(answers, list) else [answers]


def largest_difference(model: Qwen3ForCausalLM, prompt: list[int], answer: dict) -> float:
    """Largest |log-prob of the engine - log-prob of the Hugging Face model| over the new tokens."""
    new = answer["output_ids"]
    reported = torch.tensor([entry[0] for entry in answer["meta_info"]["output_token_logprobs"]])
    with torch.no_grad():
        log_probs = model(torch.tensor([prompt + new])).logits[0].log_softmax(-1)
    positions = torch.arange(len(prompt) - 1, len(prompt) - 1 + len(new))
    return (log_probs[positions, torch.tensor(new)] - reported).abs().max().item()
