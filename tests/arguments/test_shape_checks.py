"""Options of the model's shape against config.json: every one of them is compared."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from slime.arguments.check_data import scan_train_data
from slime.arguments.errors import Problem
from slime.arguments.facts import gather_facts
from slime.arguments.raw import read_raw
from slime.arguments.registry import flags_by_key
from slime.arguments.resolve import resolve
from slime.arguments.validate import validate

Collect = Callable[..., list[Problem]]
EXPERTS = {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
# Megatron's option -> a wrong value for the model of conftest.py (with the experts above).
WRONG: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 64,
    "ffn_hidden_size": 512,
    "num_attention_heads": 8,
    "num_query_groups": 4,
    "kv_channels": 16,
    "vocab_size": 99,
    "max_position_embeddings": 512,
    "rotary_base": 5e5,
    "normalization": "LayerNorm",
    "norm_epsilon": 1e-5,
    "untie_embeddings_and_output_weights": True,
    "add_qkv_bias": True,
    "num_experts": 4,
    "moe_router_topk": 4,
    "moe_ffn_hidden_size": 32,
    "moe_router_score_function": "sigmoid",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_contradiction_names_both_values(problems_of: Collect, model: Path, name: str) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | EXPERTS))
    flag, _ = flags_by_key()[name]
    words = [flag.name] if flag.kind is bool else [flag.name, str(WRONG[name])]
    found = [problem for problem in problems_of(*words) if problem.option == flag.name]
    assert [p.value for p in found] == [WRONG[name]]
    assert "config.json says" in found[0].message and "leave the option out" in found[0].remedy


def test_validation_changes_nothing(argv: list[str]) -> None:
    words = "--lr nan --num-layers 3 --n-samples-per-prompt 1 --rm-type mth"
    raw, _ = read_raw([*argv, *words.split()])
    facts, _ = gather_facts(raw)
    scan = scan_train_data(raw, facts)
    args = resolve(raw, facts)
    before = deepcopy((vars(args), raw, facts, scan))
    assert len(validate(args, raw, facts, scan)) >= 3
    after = (vars(args), raw, facts, scan)
    assert repr(after) == repr(before)  # by text: lr is NaN, which differs from itself


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--expert-model-parallel-size 2", []),
        ("--tensor-model-parallel-size 2 --sequence-parallel", []),
        ("--tensor-model-parallel-size 2", ["--sequence-parallel"]),
        ("--expert-model-parallel-size 3", ["--expert-model-parallel-size"] * 2),
        ("--expert-model-parallel-size 4", ["--expert-model-parallel-size"]),
        (
            "--expert-tensor-parallel-size 3",
            ["--expert-model-parallel-size", "--expert-tensor-parallel-size"],
        ),
    ],
)
def test_experts_are_split_over_the_ranks(
    words: str, found: list[str], problems_of: Collect, model: Path
) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | EXPERTS))
    problems = problems_of("--actor-num-gpus-per-node", "2", *words.split())
    assert [p.option for p in problems if "expert" in p.message] == found
