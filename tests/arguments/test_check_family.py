"""Models that the trainer would compute wrongly are refused; those it knows are not."""

from typing import Any

import pytest

from slime.arguments.check_built import check_built
from slime.arguments.check_family import check_family, unsupported
from slime.arguments.facts import gather_facts
from slime.arguments.parse import parse_args
from slime.arguments.raw import read_raw
from slime.arguments.resolve import resolve

DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "kv_lora_rank": 512,
    "n_group": 8,
    "topk_group": 4,
    "num_experts_per_tok": 8,
    "n_routed_experts": 256,
    "norm_topk_prob": True,
    "rope_scaling": {"type": "yarn", "factor": 40},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
LLAMA_3_1 = {
    "model_type": "llama",
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
QWEN2_5 = {"model_type": "qwen2", "use_sliding_window": False, "hidden_act": "silu"}


def test_a_model_without_converter_is_named(argv: list[str]) -> None:
    args = parse_args(argv=argv)
    args.hf_architecture = {"model_type": "mamba"}
    (problem,) = check_built(args)
    assert "mamba" in str(problem.message)
    args.debug_rollout_only = True  # engines may still serve it
    assert list(check_built(args)) == []


def test_everything_that_would_be_computed_wrongly_is_named(argv: list[str]) -> None:
    args = parse_args(argv=argv)
    args.hf_architecture = {**QWEN2_5, "use_sliding_window": True, "hidden_act": "gelu"}
    assert len(list(check_built(args))) == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", "no layers for it"),
        ("--mtp-num-layers 1", ""),
        ("--mtp-num-layers 1 --recompute-granularity full", "recompute"),
        ("--mtp-num-layers 1 --loss-type custom_loss", "custom loss"),
    ],
)
def test_what_multi_token_prediction_needs(words: str, named: str, argv: list[str]) -> None:
    raw, _ = read_raw([*argv, "--enable-mtp-training", *words.split()])
    problems = list(check_family(resolve(raw, gather_facts(raw)[0])))
    assert [problem.option for problem in problems] == ["--enable-mtp-training"] * bool(named)
    assert named in str(problems)


@pytest.mark.parametrize("config", [DEEPSEEK_V3, LLAMA_3_1, QWEN2_5])
def test_known_models_are_fine(config: dict[str, Any]) -> None:
    assert list(unsupported(config)) == []


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({**QWEN2_5, "quantization_config": {"quant_method": "awq"}}, "quantised by awq"),
        (
            {
                **QWEN2_5,
                "quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]},
            },
            "quantised by fp8",
        ),
        ({**QWEN2_5, "rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
        ({**QWEN2_5, "rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "linear"),
        (
            {**LLAMA_3_1, "rope_scaling": {"rope_type": "llama3", "low_freq_factor": 2.0}},
            "low_freq_factor 2.0",
        ),
        ({**LLAMA_3_1, "mlp_bias": True}, "mlp_bias"),
        ({**DEEPSEEK_V3, "num_experts_per_tok": 4}, "two best"),
        ({**DEEPSEEK_V3, "norm_topk_prob": False}, "norm_topk_prob"),
    ],
)
def test_what_is_not_supported_is_said(config: dict[str, Any], named: str) -> None:
    (message,) = unsupported(config)
    assert named in message
