"""One training step of slime against plain loops of transformers and torch, on the same samples.

    ./bazelw run //benchmarks:train_step -- --model DIR

Each variant runs in a process of its own, one thread, float32, AdamW, gradients clipped to 1, the
GRPO loss of one step per rollout (old log-probs are the present ones):

- slime: Megatron, packed without padding, logits of the response tokens only
- packed: transformers, the same tokens packed into one row with the mask that keeps them apart
- padded: transformers, one right-padded batch, as TRL's GRPO step has it

Tokens are those of the samples, padding does not count. Time is processor time, so that a busy
machine changes little; memory is the growth of the peak over the process with all imports done.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

VARIANTS = ("slime", "packed", "padded")
_LR = 1e-6
Samples = list[tuple[np.ndarray, int]]  # token ids, length of the response


def make_samples(count: int, longest: int, vocab_size: int, seed: int = 0) -> Samples:
    """Lengths of a lognormal spread, as of answers: most are short, a few as long as allowed."""
    random = np.random.default_rng(seed)
    totals = np.clip(random.lognormal(np.log(longest / 4), 0.7, count).astype(int), 8, longest)
    totals[0] = longest
    return [(random.integers(0, vocab_size, n), max(2, int(n * 0.7))) for n in totals]


def slime_step(model: Path, samples: Samples) -> Callable[[], None]:
    """A function that trains once."""
    from slime.arguments.facts import gather_facts
    from slime.arguments.raw import read_raw
    from slime.arguments.resolve import resolve
    from slime.trainer.initialize import init

    options = {"hf-checkpoint": model, "run-dir": tempfile.gettempdir(), "lr": _LR}
    options |= {"device": "cpu", "actor-num-gpus-per-node": 1, "num-rollout": 1}
    raw, _ = read_raw([f"--{name}={value}" for name, value in options.items()])
    args = resolve(raw, gather_facts(raw)[0])
    init(args, master_port=_free_port())
    from slime.trainer.trainer import Trainer  # after init, which quiets Megatron's warnings

    trainer = Trainer(args)
    trainer.load()
    count = len(samples)
    data = {
        "tokens": [ids for ids, _ in samples],
        "total_lengths": [len(ids) for ids, _ in samples],
        "response_lengths": [n for _, n in samples],
        "loss_masks": [np.ones(n, np.float32) for _, n in samples],
        "rewards": [1.0 if i % 2 else -1.0 for i in range(count)],
        "rollout_log_probs": [np.full(n, -1.0, np.float32) for _, n in samples],
        "rollout_ids": list(range(count)),
        "sample_indices": list(range(count)),
        "micro_batch_indices": [list(range(count))],
        "num_microbatches": [1],
        "global_batch_sizes": [count],
        "global_num_tokens": [float(sum(n for _, n in samples))],
    }
    return lambda: trainer.train(0, data) and None


def plain_step(model: Path, samples: Samples, padded: bool) -> Callable[[], None]:
    """The same step by transformers, packed or padded."""
    import torch
    import transformers

    policy = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    # The fused kernel is the default of transformers' Trainer, and so of TRL.
    optimizer = torch.optim.AdamW(policy.parameters(), lr=_LR, weight_decay=0.01, fused=True)
    rewards = torch.tensor([1.0 if i % 2 else -1.0 for i in range(len(samples))])
    tokens, positions, rows = (_padded if padded else _packed)(samples)

    def step() -> None:
        optimizer.zero_grad()
        # Without a mask transformers keeps packed sequences apart by the positions.
        logits = policy(input_ids=tokens, position_ids=positions, use_cache=False).logits
        loss = torch.zeros(())
        for (row, begin, total, response), reward in zip(rows, rewards, strict=True):
            part = logits[row, begin + total - response - 1 : begin + total - 1]
            ids = tokens[row, begin + total - response : begin + total, None]
            log_p = torch.log_softmax(part, -1).gather(1, ids)[:, 0]
            loss = loss - (torch.exp(log_p - log_p.detach()) * reward).mean() / len(samples)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()

    return step


def _packed(samples: Samples) -> tuple[Any, Any, list[tuple[int, int, int, int]]]:
    import torch

    tokens = torch.as_tensor(np.concatenate([ids for ids, _ in samples]))[None]
    positions = torch.cat([torch.arange(len(ids)) for ids, _ in samples])[None]
    begins = np.cumsum([0] + [len(ids) for ids, _ in samples])
    rows = [(0, int(b), len(ids), n) for b, (ids, n) in zip(begins, samples, strict=False)]
    return tokens, positions, rows


def _padded(samples: Samples) -> tuple[Any, Any, list[tuple[int, int, int, int]]]:
    import torch

    longest = max(len(ids) for ids, _ in samples)
    tokens = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, (ids, _) in enumerate(samples):
        tokens[row, : len(ids)] = torch.as_tensor(ids)
    rows = [(i, 0, len(ids), n) for i, (ids, n) in enumerate(samples)]
    return tokens, torch.arange(longest).expand(len(samples), -1), rows


def measure(variant: str, model: Path, samples: Samples, steps: int) -> dict[str, float]:
    """Processor seconds of a step (median) and gigabytes it needs, in this process."""
    import torch
    import transformers  # noqa: F401 - counted among the imports in every variant

    torch.set_num_threads(1)
    if variant == "slime":
        import megatron.core.optimizer  # noqa: F401
    before = _peak_gigabytes()
    step = slime_step(model, samples) if variant == "slime" else None
    step = step or plain_step(model, samples, variant == "padded")
    step()
    seconds = []
    for _ in range(steps):
        begin = time.process_time()
        step()
        seconds.append(time.process_time() - begin)
    return {"seconds": median(seconds), "gigabytes": _peak_gigabytes() - before}


def _peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Measure every variant in turn, twice, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face folder")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--longest", type=int, default=64, help="tokens of the longest sample")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2, help="times each variant is measured")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    vocab_size = json.loads((args.model / "config.json").read_text())["vocab_size"]
    samples = make_samples(args.samples, args.longest, vocab_size)
    if args.variant:
        print(json.dumps(measure(args.variant, args.model, samples, args.steps)))
        return
    results: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(args.rounds):
        for variant in VARIANTS:
            command = [sys.executable, "-m", "benchmarks.train_step", *sys.argv[1:]]
            output = subprocess.run(
                [*command, "--variant", variant], check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            results[variant].append(json.loads(output.splitlines()[-1]))
    print(render(results, sum(len(ids) for ids, _ in samples)))


def render(results: dict[str, list[dict[str, float]]], tokens: int) -> str:
    """The table; the best round of each variant counts."""
    best = {name: min(rounds, key=lambda r: r["seconds"]) for name, rounds in results.items()}
    lines = ["| | tokens per second | slime / this | gigabytes |", "|---|---|---|---|"]
    for name, row in best.items():
        ratio = row["seconds"] / best["slime"]["seconds"]
        memory = min(each["gigabytes"] for each in results[name])
        lines.append(f"| {name} | {tokens / row['seconds']:.0f} | {ratio:.2f} | {memory:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
