"""Builds a tiny random model of one architecture, with the quick start's tokenizer.

python -m tests.e2e.models.make_model --kind qwen3_moe --out DIR
"""

import argparse
import json
import tempfile
from pathlib import Path

from transformers import GenerationConfig

from examples.quickstart.tokenizer import build_tokenizer
from tests.trainer.hf_models import KINDS, with_prediction_layer, write_hf_model

# transformers does not know MiMo: it is Qwen2 with a layer for prediction.
MIMO_CODE = """\
from transformers import Qwen2Config


class MiMoConfig(Qwen2Config):
    model_type = "mimo"
"""
MIMO = {
    "architectures": ["MiMoForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_mimo.MiMoConfig"},
}


def write_mimo(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = write_hf_model(Path(folder, "qwen2"), "qwen2", tied=False)
        with_prediction_layer(source, out, "mimo")
    config = json.loads((out / "config.json").read_text()) | MIMO
    (out / "config.json").write_text(json.dumps(config))
    (out / "configuration_mimo.py").write_text(MIMO_CODE)


def make_model(kind: str, out: Path) -> None:
    """Writes the folder `out`; the same kind gives the same bytes."""
    tokenizer = build_tokenizer()
    if kind == "mimo":
        write_mimo(out)
    else:
        write_hf_model(out, kind, tied=False)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = json.loads((out / "config.json").read_text()) | ends | {"bos_token_id": None}
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    GenerationConfig(**ends).save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=sorted([*KINDS, "mimo"]), required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args()
    make_model(args.kind, args.out)


if __name__ == "__main__":
    main()
