"""What follows from what: derived sizes, defaults that depend on the device, on the model and on
each other.
"""

from copy import deepcopy
from pathlib import Path

import pytest

from slime.arguments.facts import Facts
from slime.arguments.parse import parse_args
from slime.arguments.raw import read_raw
from slime.arguments.resolve import resolve


def resolved(words: str, **facts: object) -> dict[str, object]:
    raw, problems = read_raw(words.split(), environment={})
    assert problems == []
    defaults: dict[str, object] = {"directory": "/here", "now": "20260101-000000"}
    return vars(resolve(raw, Facts(**{**defaults, **facts})))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "device", "expected"),
    [
        ("", "cpu", {"actor_num_gpus_per_node": 1, "world_size": 1, "rollout_num_gpus": 1}),
        ("", "cuda", {"actor_num_gpus_per_node": 8, "world_size": 8, "rollout_num_gpus": None}),
        ("--device cpu", "cuda", {"device": "cpu", "world_size": 1}),
        ("--actor-num-gpus-per-node 4 --actor-num-nodes 2", "cpu", {"world_size": 8}),
        ("", "cpu", {"dtype": "float32", "bf16": False, "distributed_backend": "gloo"}),
        ("", "cuda", {"dtype": "bfloat16", "bf16": True, "distributed_backend": "nccl"}),
        ("--fp32", "cuda", {"dtype": "float32", "bf16": False}),
        ("--fp16", "cuda", {"dtype": "float16", "bf16": False}),
        ("--bf16", "cpu", {"dtype": "bfloat16"}),
        ("", "cpu", {"sglang_server_args": {"dtype": "float32"}, "transformer_impl": "local"}),
        ("--sglang-dtype bfloat16", "cpu", {"sglang_server_args": {"dtype": "bfloat16"}}),
        ("--colocate", "cuda", {"rollout_num_gpus": 8, "offload_train": True}),
        ("--colocate", "cpu", {"rollout_num_gpus": 1, "offload_train": False}),
        ("--colocate --no-offload-train", "cuda", {"offload_train": False}),
        ("--offload", "cuda", {"offload_train": True, "offload_rollout": True}),
        (
            "--rollout-num-gpus 8 --rollout-num-gpus-per-engine 4",
            "cuda",
            {"rollout_num_engines": 2},
        ),
        ("--rollout-num-gpus-per-engine 2", "cpu", {"rollout_num_engines": 1}),
        ("--debug-train-only", "cpu", {"rollout_num_engines": 0}),
        ("--load-debug-rollout-data x_{rollout_id}", "cuda", {"debug_train_only": True}),
        ("--rollout-external-engine-addrs a:1 b:2", "cuda", {"rollout_num_engines": 2}),
        (
            "--actor-num-gpus-per-node 8 --tensor-model-parallel-size 2 --context-parallel-size 2",
            "cpu",
            {"data_parallel_size": 2, "expert_tensor_parallel_size": 2},
        ),
        ("--cp-comm-type a2a", "cpu", {"cp_comm_type": "a2a"}),
    ],
)
def test_cluster_and_precision(words: str, device: str, expected: dict[str, object]) -> None:
    args = resolved(words, device=device)
    assert {name: args[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {"global_batch_size": 128, "num_steps_per_rollout": 1, "train_iters": 60}),
        ("--num-steps-per-rollout 4", {"global_batch_size": 32, "train_iters": 240}),
        ("--global-batch-size 32", {"num_steps_per_rollout": 4, "lr_decay_iters": 240}),
        ("--lr-decay-iters 9 --lr-warmup-fraction 0.5", {"lr_warmup_iters": 4}),
        ("--over-sampling-batch-size 20", {"over_sampling_batch_size": 20}),
        ("", {"over_sampling_batch_size": 16, "log_probs_max_tokens_per_gpu": None}),
        ("--max-tokens-per-gpu 7", {"log_probs_max_tokens_per_gpu": 7}),
        ("", {"eps_clip_high": 0.2, "use_reference": False, "use_critic": False}),
        ("--eps-clip 0.3", {"eps_clip_high": 0.3}),
        ("--kl-coef 0.1", {"use_reference": True}),
        ("--use-kl-loss", {"use_reference": True}),
        ("--advantage-estimator ppo", {"use_critic": True}),
        ("--rollout-temperature 0.5 --rollout-top-k 3", {"eval_temperature": 0.5, "eval_top_k": 3}),
        ("--eval-temperature 0", {"eval_temperature": 0.0}),
        ("--label-key a --reward-key s", {"eval_label_key": "a", "eval_reward_key": "s"}),
        ("--weight-decay 0.1", {"start_weight_decay": 0.1, "end_weight_decay": 0.1}),
    ],
)
def test_batches_and_algorithm(words: str, expected: dict[str, object]) -> None:
    base = "--rollout-batch-size 16 --n-samples-per-prompt 8 --num-rollout 60 "
    args = resolved(base + words)
    assert {name: args[name] for name in expected} == expected


def test_epochs_become_rollouts() -> None:
    words = "--rollout-batch-size 16 --num-epoch 3"
    args = resolved(words, num_prompts=100)
    assert (args["num_rollout_per_epoch"], args["num_rollout"]) == (6, 18)
    assert resolved(words)["num_rollout"] is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {"run_dir": "/here/runs/slime-20260101-000000"}),
        ("--run-name a", {"run_dir": "/here/runs/a", "save": "/here/runs/a/checkpoints"}),
        ("--run-name a", {"save_hf": "/here/runs/a/hf"}),
        ("--run-name a --device cuda", {"save_hf": None}),
        ("--run-dir /x/b", {"run_name": "b", "save": "/x/b/checkpoints"}),
        ("--run-dir /x/b --save /y", {"save": "/y"}),
        ("--run-dir /x/b --save-hf {run_dir}/h_{rollout_id}", {"save_hf": "/x/b/h_{rollout_id}"}),
        ("--run-dir /x/b --debug-rollout-only", {"save": None, "save_hf": None}),
        (
            "--save-debug-rollout-data /d",
            {"save_debug_rollout_data": "/d/{rollout_id}"},
        ),
        (
            "--load-debug-rollout-data /d/{rollout_id}.x --debug-train-only",
            {"load_debug_rollout_data": "/d/{rollout_id}.x"},
        ),
        (
            "--dump-details /d",
            {
                "save_debug_rollout_data": "/d/rollout_data/{rollout_id}",
                "save_debug_train_data": "/d/train_data/{rollout_id}_{rank}",
            },
        ),
    ],
)
def test_directories(words: str, expected: dict[str, object]) -> None:
    args = resolved(words)
    assert {name: args[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("examples/quickstart/config.yaml", "quickstart"),
        ("a/ppo.yaml", "ppo"),
        ("config.yaml", "slime"),
    ],
)
def test_the_run_is_named_after_its_config(tmp_path: Path, config: str, name: str) -> None:
    (tmp_path / config).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / config).write_text("")
    assert resolved(f"--config {config}")["run_name"] == f"{name}-20260101-000000"


def test_shape_comes_from_the_checkpoint_unless_given(argv: list[str]) -> None:
    args = parse_args(argv=argv)
    assert (args.num_layers, args.kv_channels, args.qk_layernorm) == (2, 32, True)
    assert (args.vocab_size, args.model_name) == (100, "qwen3")
    assert args.hf_architecture["model_type"] == "qwen3"
    args = parse_args(argv=[*argv, "--make-vocab-size-divisible-by", "64"])
    assert args.vocab_size == args.padded_vocab_size == 128


@pytest.mark.parametrize(
    ("words", "chunks", "group"),
    [
        ("", None, 2),
        ("--num-virtual-stages-per-pipeline-rank 2", 2, 2),
        ("--num-layers-per-virtual-pipeline-stage 2", 2, 2),
        ("--virtual-pipeline-model-parallel-size 4", 4, 2),
        ("--microbatch-group-size-per-virtual-pipeline-stage 3", None, 3),
    ],
)
def test_virtual_stages(words: str, chunks: int | None, group: int) -> None:
    args = resolved(f"--num-layers 8 --pipeline-model-parallel-size 2 {words}")
    assert args["virtual_pipeline_model_parallel_size"] == chunks
    assert args["microbatch_group_size_per_vp_stage"] == group


def test_the_vocabulary_is_padded_for_gpu_kernels_only(argv: list[str]) -> None:
    words = [*argv, "--device", "cuda", "--colocate"]
    assert parse_args(argv=words).vocab_size == 128


def test_the_context_is_the_models_limit_unless_given(argv: list[str]) -> None:
    args = parse_args(argv=argv)
    assert args.rollout_max_context_len == args.seq_length == 256
    args = parse_args(argv=[*argv, "--rollout-max-context-len", "64"])
    assert args.rollout_max_context_len == args.eval_max_context_len == 64


def test_resolution_is_pure() -> None:
    words = "--colocate --sglang-x 1 --rollout-batch-size 4"
    raw, _ = read_raw(words.split(), environment={})
    facts = Facts(device="cuda", eval_entries=({"name": "a", "path": "/a"},))
    before, facts_before = deepcopy(raw), deepcopy(facts)
    first, second = resolve(raw, facts), resolve(raw, facts)
    assert first == second
    assert (raw, facts) == (before, facts_before)
    first.sglang_server_args["y"] = 2
    first.profile_target.append("x")
    assert raw == before


def test_relative_paths_become_absolute(argv: list[str], tmp_path: Path) -> None:
    args = parse_args(argv=[*argv, "--prompt-data", "train.jsonl@[0:4]", "--save", "ckpt"])
    assert args.prompt_data == f"{tmp_path}/train.jsonl@[0:4]"
    assert args.save == f"{tmp_path}/ckpt"
    assert args.num_rollout_per_epoch == 0
