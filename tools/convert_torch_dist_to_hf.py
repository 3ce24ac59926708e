"""Write the weights of a torch_dist checkpoint as a Hugging Face checkpoint.

    ./bazelw run //tools:convert_torch_dist_to_hf -- \\
        --input-dir RUN/checkpoints --output-dir OUT --origin-hf-dir MODEL

One process reads a checkpoint of any parallel layout, tensor by tensor. ``--quantize`` writes FP8
in blocks of 128 x 128, or 4-bit integers in groups.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slime.trainer import cpu_compat

_QUANTIZE: dict[str, dict[str, Any]] = {
    "fp8": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    },
    "int4": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 4,
                    "type": "int",
                    "symmetric": True,
                    "strategy": "group",
                    "group_size": 32,
                },
            }
        },
        "ignore": ["lm_head", "re:.*mlp.gate$"],
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 1 with a sentence if it cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--input-dir", type=Path, required=True, help="checkpoint, or all of a run")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--origin-hf-dir", type=Path, required=True, help="for config, tokenizer")
    parser.add_argument("--quantize", choices=sorted(_QUANTIZE))
    parser.add_argument("--chunk-size", type=int, default=5 * 1000**3, help="bytes of a shard")
    parser.add_argument("--force", "-f", action="store_true", help="replace --output-dir")
    options = parser.parse_args(argv)
    if options.output_dir.exists() and not options.force:
        print(f"{options.output_dir} exists; --force replaces it", file=sys.stderr)
        return 1
    cpu_compat.install()  # before Megatron is imported, where there is no GPU
    from slime.trainer.hf_to_megatron.common import CheckpointError
    from slime.trainer.torch_dist_to_hf import convert

    try:
        convert(
            options.input_dir,
            options.output_dir,
            options.origin_hf_dir,
            _QUANTIZE.get(options.quantize),
            options.chunk_size,
        )
    except (OSError, ValueError, CheckpointError) as error:
        print(f"convert_torch_dist_to_hf: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
