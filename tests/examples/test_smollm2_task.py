"""The SmolLM2 example's task and reward, with reasoning-gym itself as the oracle."""

import asyncio
import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from examples.smollm2.make_data import make_data
from examples.smollm2.reward import last_number


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        ("The final answer is 6.", "6", 1.0),
        ("1 + 5 = 6", "6", 1.0),
        ("6.0", "6", 1.0),
        ("5 - 9 = -4", "-4", 1.0),
        ("5 - 9 = 4", "-4", 0.0),
        ("16", "6", 0.0),
        ("6, or maybe 7", "6", 0.0),
        ("no idea", "6", 0.0),
        ("", "6", 0.0),
        ("6", None, 0.0),
    ],
)
def test_the_last_number_decides(response: str, label: str | None, reward: float) -> None:
    sample = SimpleNamespace(response=response, label=label)
    assert asyncio.run(last_number(Namespace(), sample)) == reward


def test_data_is_right_disjoint_and_repeatable(tmp_path: Path) -> None:
    make_data(tmp_path / "a")
    make_data(tmp_path / "b")
    rows = {}
    for name in ("train.jsonl", "eval.jsonl"):
        text = (tmp_path / "a" / name).read_text()
        assert text == (tmp_path / "b" / name).read_text()
        rows[name] = {
            r["input"][0]["content"]: r["label"] for r in map(json.loads, text.splitlines())
        }
    assert len(rows["eval.jsonl"]) == 32 and len(rows["train.jsonl"]) >= 100
    assert not rows["train.jsonl"].keys() & rows["eval.jsonl"].keys()
    for question, label in (rows["train.jsonl"] | rows["eval.jsonl"]).items():
        left, sign, right = question.split(": ")[1].removesuffix(" =").split()
        assert int(label) == int(left) + int(sign + right)
