"""Show at which layer Megatron and transformers, or two dumps of Megatron, begin to differ.

    ./bazelw run //tools:compare_layers -- --model DIR                  # with transformers
    ./bazelw run //tools:compare_layers -- --model DIR --dump FILE      # keep what Megatron has
    ./bazelw run //tools:compare_layers -- --model DIR --against FILE   # with what was kept

On random tokens, in one process. A dump is a safetensors file: `layer.N` of [tokens, hidden] and
`logits` of [tokens, vocabulary].
"""

from __future__ import annotations

import argparse
import json
import socket
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from slime.arguments.facts import gather_facts
from slime.arguments.raw import read_raw
from slime.arguments.resolve import resolve


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 1 if some layer differs by more than the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="a Hugging Face folder")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tolerance", type=float, default=1e-4, help="relative")
    parser.add_argument("--dump", help="write Megatron's outputs here and stop")
    parser.add_argument("--against", help="compare with this dump instead of transformers")
    options = parser.parse_args(argv)
    args = _join(options.model)
    import torch
    from safetensors.torch import load_file, save_file

    from slime.trainer.layer_alignment import compare, first_difference, hf_layers, megatron_layers

    vocab_size = json.loads(Path(options.model, "config.json").read_text())["vocab_size"]
    generator = torch.Generator().manual_seed(options.seed)
    ids = torch.randint(vocab_size, (options.tokens,), generator=generator)
    got = megatron_layers(args, ids.to(torch.cuda.current_device()))
    if options.dump:
        save_file(got, options.dump)
        return 0
    want = load_file(options.against) if options.against else hf_layers(options.model, ids)
    differences = compare(got, want)
    for difference in differences:
        print(f"{difference.name:12} {difference.largest:.3e}  relative {difference.relative:.3e}")
    first = first_difference(differences, options.tolerance)
    print("no layer differs" if first is None else f"the first that differs: {first.name}")
    return int(first is not None)


def _join(model: str) -> Namespace:
    """The arguments of a train group of one, and the group."""
    import torch.distributed as dist

    from slime.trainer.initialize import init

    words = [f"--hf-checkpoint={model}", "--actor-num-gpus-per-node=1", "--num-rollout=1"]
    raw, _ = read_raw(words)
    args = resolve(raw, gather_facts(raw)[0])
    if not dist.is_initialized():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        init(args, master_port=port)
    return args


if __name__ == "__main__":
    raise SystemExit(main())
