"""Writes train.jsonl and eval.jsonl: distinct questions, held-out ones only in the latter.

    python -m examples.quickstart.make_data --task reverse --out DIR

Each line is {"input": [chat messages], "label": answer}, the keys that config.yaml names.
"""

import argparse
import json
import random
from collections.abc import Iterable
from pathlib import Path

from examples.quickstart.task import TASKS, Question, questions

NUM_TRAIN = 4096
NUM_EVAL = 512


def distinct(task: str, rng: random.Random, held_out: bool, count: int) -> list[Question]:
    found: dict[Question, None] = {}  # keeps the order
    for question in questions(task, rng, held_out):
        found[question] = None
        if len(found) == count:
            break
    return list(found)


def write_jsonl(path: Path, rows: Iterable[Question]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for question in rows:
            messages = [{"role": "user", "content": question.text}]
            file.write(json.dumps({"input": messages, "label": question.answer}) + "\n")


def make_data(task: str, out: Path, seed: int = 0) -> None:
    """Writes both files into the folder `out`; the same seed gives the same bytes."""
    out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    write_jsonl(out / "train.jsonl", distinct(task, rng, held_out=False, count=NUM_TRAIN))
    write_jsonl(out / "eval.jsonl", distinct(task, rng, held_out=True, count=NUM_EVAL))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=sorted(TASKS), default="reverse")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    make_data(args.task, args.out, args.seed)


if __name__ == "__main__":
    main()
