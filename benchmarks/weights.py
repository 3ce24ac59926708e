"""Bytes per second of each way from the trainer to the engines, against memcpy; sizes of deltas.

    ./bazelw run //benchmarks:weights

One real engine on this machine takes a random Qwen3 of 0.17 GB by every transport, in float32. The
sizes of deltas come from real training steps of the quick-start model at two learning rates.
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from examples.quickstart.task import questions
from examples.quickstart.warm_start import make_batch
from slime.arguments import parse_args
from slime.engines.servers import RolloutServers
from slime.weights.delta import DeltaWeightUpdater, as_bytes
from slime.weights.delta_codec import encode
from slime.weights.disk import DiskWeightUpdater
from slime.weights.distributed import DistributedWeightUpdater
from slime.weights.engine_calls import EngineAddress
from slime.weights.tensor import TensorWeightUpdater
from slime.weights.updater import NamedTensors, WeightUpdater

REPEATS = 5
BUCKET_BYTES = 64 * 1024**2
STEPS = 3
NODE = "here"


def main() -> None:
    """Print both tables."""
    root = Path(os.environ.get("SLIME_RUNFILES", "bazel-bin"), "examples/quickstart")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=root / "model", help="the quick start's")
    parser.add_argument("--data", type=Path, default=root / "data")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder:
        measure_transports(given.model, given.data, Path(folder))
    measure_deltas(given.model)


def measure_transports(quickstart: Path, data: Path, work: Path) -> None:
    """Start an engine and send it the model by every transport."""
    model = large_model()
    model.save_pretrained(work / "model")
    AutoTokenizer.from_pretrained(quickstart).save_pretrained(work / "model")
    named = [(n, t) for n, t in model.state_dict().items() if n != "lm_head.weight"]
    size = sum(tensor.numel() * tensor.element_size() for _, tensor in named)
    args = engine_args(work / "model", data, work)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    servers = RolloutServers(args, work)
    servers.start(progress=print)
    print(f"\n| way | seconds for {size / 1e9:.2f} GB | GB/s | of memcpy |\n|---|---|---|---|")
    try:
        engine = EngineAddress(servers.engine_urls[0], node=NODE, takes_memory=True)
        copy = memcpy_seconds(named)
        report("memcpy", copy, size, copy)
        for name, updater in updaters(args, work).items():
            seconds = []
            for version in range(REPEATS):
                with torch.no_grad():  # a small change, as a trainer makes
                    named[0][1][0] += 1e-3
                started = time.perf_counter()
                updater.update([engine], buckets(named), version)
                seconds.append(time.perf_counter() - started)
            updater.close()
            report(name, statistics.median(seconds[1:]), size, copy)  # the first opens connections
    finally:
        servers.stop()
        dist.destroy_process_group()


def updaters(args: Namespace, work: Path) -> dict[str, WeightUpdater]:
    """Every transport."""
    return {
        "memory (one machine)": TensorWeightUpdater(node=NODE),
        "posted (base64)": TensorWeightUpdater(node="elsewhere"),
        "process group (gloo)": DistributedWeightUpdater("gloo"),
        "disk": DiskWeightUpdater(args, work / "disk"),
        "disk delta (xor)": DeltaWeightUpdater(args, work / "delta", work / "local"),
    }


def large_model() -> Qwen3ForCausalLM:
    """Random; 42 million parameters."""
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=4096,
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=10,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=64,
            max_position_embeddings=256,
            tie_word_embeddings=True,
        )
    ).float()


def engine_args(model: Path, data: Path, work: Path) -> Namespace:
    """Of a run that only generates."""
    words = "--debug-rollout-only --device cpu --label-key label --rm-type exact --num-rollout 1"
    words += " --rollout-batch-size 4 --n-samples-per-prompt 4 --rollout-max-response-len 8"
    paths = ["--hf-checkpoint", model, "--prompt-data", data / "train.jsonl", "--run-dir", work]
    return parse_args(argv=[*words.split(), *map(str, paths)])


def buckets(named: NamedTensors) -> Iterator[NamedTensors]:
    """As the trainer makes them."""
    bucket: NamedTensors = []
    for name, tensor in named:
        bucket.append((name, tensor))
        if sum(t.numel() * t.element_size() for _, t in bucket) > BUCKET_BYTES:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def memcpy_seconds(named: NamedTensors) -> float:
    """One copy of the same bytes from memory to memory that is mapped already."""
    sources = [as_bytes(tensor) for _, tensor in named]
    targets = [source.copy() for source in sources]
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        for source, target in zip(sources, targets, strict=True):
            target[:] = source
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def report(name: str, seconds: float, size: int, copy: float) -> None:
    """One row."""
    print(f"| {name} | {seconds:.3f} | {size / seconds / 1e9:.2f} | {copy / seconds:.0%} |")


def measure_deltas(quickstart: Path) -> None:
    """Sizes of the change of a few training steps, as a share of the weights."""
    tokenizer = AutoTokenizer.from_pretrained(quickstart)
    print(
        "\n| sent as | learning rate | changed numbers | xor | overwrite |\n|---|---|---|---|---|"
    )
    for dtype in (torch.float32, torch.bfloat16):
        for rate in (1e-6, 1e-4):
            before, after = trained(quickstart, tokenizer, rate, dtype)
            size = sum(as_bytes(tensor).size for tensor in after)
            changed = sum(int((a != b).sum()) for a, b in zip(after, before, strict=True))
            share = changed / sum(tensor.numel() for tensor in after)
            row = [str(dtype).removeprefix("torch."), f"{rate:g}", f"{share:.1%}"]
            for encoding in ("xor", "overwrite"):
                parts = [
                    encode(as_bytes(a), as_bytes(b), a.element_size(), encoding)
                    for a, b in zip(after, before, strict=True)
                ]
                row.append(f"{sum(map(len, parts)) / size:.1%}")
            print("| " + " | ".join(row) + " |")


def trained(
    quickstart: Path, tokenizer: PreTrainedTokenizerBase, rate: float, dtype: torch.dtype
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The weights in `dtype` before and after the last of `STEPS` AdamW steps in float32."""
    model = AutoModelForCausalLM.from_pretrained(quickstart, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    stream = questions("reverse", random.Random(0), held_out=False)
    before: list[torch.Tensor] = []
    for _ in range(STEPS):
        before = [p.detach().to(dtype, copy=True) for p in model.parameters()]
        asked = list(islice(stream, 64))
        batch = make_batch(tokenizer, asked, [question.answer for question in asked])
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return before, [p.detach().to(dtype) for p in model.parameters()]


if __name__ == "__main__":
    main()
