"""Writes train.jsonl and eval.jsonl for `chain_sum`.

    python -m examples.smollm2.make_data --out DIR

No evaluation question is trained on.
"""

import argparse
import json
from pathlib import Path

from examples.smollm2.procedural import problems

NUM_DRAWN = 1000  # of which about 160 are distinct
NUM_EVAL = 32


def write_jsonl(path: Path, rows: list[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for question, answer in rows:
            messages = [{"role": "user", "content": question}]
            file.write(json.dumps({"input": messages, "label": answer}) + "\n")


def make_data(out: Path, seed: int = 0) -> None:
    """Writes both files into the folder `out`; the same seed gives the same bytes."""
    out.mkdir(parents=True, exist_ok=True)
    rows = problems(seed, NUM_DRAWN)
    write_jsonl(out / "eval.jsonl", rows[:NUM_EVAL])
    write_jsonl(out / "train.jsonl", rows[NUM_EVAL:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    make_data(args.out, args.seed)


if __name__ == "__main__":
    main()
