"""Models that the trainer would compute wrongly are refused; those it knows are not."""

import json
from pathlib import Path
from typing import Any

import pytest

from slime.arguments.check_built import check_built
from slime.arguments.check_family import check_family, unsupported
from slime.arguments.facts import gather_facts
from slime.arguments.hf_shapes import disagreements, expected_shapes
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


TINY = {"model_type": "qwen3", "num_hidden_layers": 3, "hidden_size": 8, "intermediate_size": 12}
TINY |= {"num_attention_heads": 2, "head_dim": 4, "vocab_size": 10, "tie_word_embeddings": True}


def test_tensors_that_disagree_with_the_config_are_named_by_kind() -> None:
    shapes = expected_shapes(TINY)
    beside = {"lm_head.weight": [10, 8], "model.layers.3.enorm.weight": [8]}
    assert list(disagreements(shapes | beside, {**TINY, "num_nextn_predict_layers": 1})) == []
    (deeper,) = disagreements(shapes | beside, TINY)  # its config.json may be another model's
    assert deeper.endswith("does not say: model.layers.3.enorm.weight")
    assert list(disagreements(shapes, {**TINY, "model_type": "mamba"})) == []
    del shapes["model.norm.weight"]
    shapes["model.layers.0.mlp.up_proj.weight"] = [12, 9]
    shapes["model.layers.1.self_attn.q_proj.bias"] = [8]
    lacks, has, shaped = disagreements(shapes, TINY)
    assert "lack model.norm.weight" in lacks and "q_proj.bias" in has
    assert "mlp.up_proj.weight is [12, 9], by its config.json [12, 8]" in shaped
    (deeper,) = disagreements(expected_shapes(TINY), {**TINY, "num_hidden_layers": 9})
    assert deeper.endswith("and 61 more")


def test_a_checkpoint_of_another_model_is_refused_before_a_run(
    argv: list[str], tmp_path: Path
) -> None:
    args = parse_args(argv=argv)
    args.hf_architecture, args.hf_checkpoint = TINY, str(tmp_path)
    header = json.dumps(
        {
            name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
            for name, shape in expected_shapes({**TINY, "intermediate_size": 16}).items()
        }
    ).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (problem,) = check_built(args)
    assert problem.option == "--hf-checkpoint" and "another shape" in problem.message


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
