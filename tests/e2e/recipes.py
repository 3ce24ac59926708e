"""Groups of options that the end-to-end tests share, as they are on GPUs, and the test's frame."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.launch import U

MATH = "zhuzilin/dapo-math-17k"
AIME = "zhuzilin/aime-2024"
GRPO = [
    *("--advantage-estimator", "grpo"),
    *("--eps-clip", "0.2", "--eps-clip-high", "0.28"),
    *("--entropy-coef", "0.0"),
]
KL_LOSS = ["--use-kl-loss", "--kl-loss-coef", "0.001", "--kl-loss-type", "low_var_kl"]
PPO = [
    *("--advantage-estimator", "ppo"),
    *("--gamma", "1.0", "--lambd", "1.0", "--value-clip", "0.2"),
    *("--eps-clip", "0.2", "--kl-coef", "0.0", "--normalize-advantages"),
]
ADAM = [
    *("--lr", "1e-6", "--lr-decay-style", "constant", "--weight-decay", "0.1"),
    *("--adam-beta1", "0.9", "--adam-beta2", "0.98"),
]
PRECISION = ["--accumulate-allreduce-grads-in-fp32", "--attention-softmax-in-fp32"]
CUDA = ["--attention-backend", "flash", "--recompute-granularity", "full"]
CUDA += ["--recompute-method", "uniform", "--recompute-num-layers", "1"]

DEEPEP = ["--moe-token-dispatcher-type", "flex", "--moe-enable-deepep"]
HOST_OPTIMIZER = ["--optimizer-cpu-offload", "--overlap-cpu-optimizer-d2h-h2d"]
HOST_OPTIMIZER += ["--use-precision-aware-optimizer", "--use-distributed-optimizer", "--bf16"]
SPECULATION = ["--sglang-speculative-algorithm", "EAGLE", "--sglang-speculative-num-steps", "3"]
SPECULATION += [
    "--sglang-speculative-eagle-topk",
    "1",
    "--sglang-speculative-num-draft-tokens",
    "4",
]


def math_rollouts(
    count: int = 3, prompts: int = 8, samples: int = 8, length: int = 8192
) -> list[str]:
    """`count` rollouts on DAPO's problems; two optimizer steps in each."""
    rollouts = 3000 if U.get_env_enable_infinite_run() else count
    return [
        *("--prompt-data", f"{U.hf_download_dataset(MATH)}/dapo-math-17k.jsonl"),
        *("--input-key", "prompt", "--label-key", "label", "--apply-chat-template"),
        *("--rollout-shuffle", "--rm-type", "deepscaler", "--balance-data"),
        *("--num-rollout", f"{rollouts}", "--rollout-batch-size", f"{prompts}"),
        *("--n-samples-per-prompt", f"{samples}", "--rollout-max-response-len", f"{length}"),
        *("--global-batch-size", f"{prompts * samples // 2}", "--rollout-temperature", "1.0"),
    ]


def evaluation() -> list[str]:
    """AIME before the first rollout and every twentieth."""
    path = f"{U.hf_download_dataset(AIME)}/aime-2024.jsonl"
    return [
        *("--eval-interval", "20", "--eval-prompt-data", "aime24", path),
        *("--n-samples-per-eval-prompt", "1", "--eval-max-response-len", "16384"),
    ]


def layout(gpus: int, tp: int = 1, pp: int = 1, cp: int = 1, ep: int = 1) -> list[str]:
    """The trainer's ranks on one node, packed by tokens."""
    words = ["--actor-num-nodes", "1", "--actor-num-gpus-per-node", f"{gpus}"]
    words += ["--tensor-model-parallel-size", f"{tp}", "--pipeline-model-parallel-size", f"{pp}"]
    words += ["--context-parallel-size", f"{cp}", "--expert-model-parallel-size", f"{ep}"]
    words += ["--expert-tensor-parallel-size", "1"] if ep > 1 else []
    words += ["--sequence-parallel"] if tp > 1 else []
    return [*words, "--use-dynamic-batch-size", "--max-tokens-per-gpu", "9216"]


def engines(gpus: int, per_engine: int = 1, memory: float = 0.8) -> list[str]:
    """SGLang's engines."""
    words = ["--rollout-num-gpus", f"{gpus}", "--rollout-num-gpus-per-engine", f"{per_engine}"]
    return [*words, "--sglang-mem-fraction-static", f"{memory}"]


def engine_config(groups: Sequence[Mapping[str, Any]]) -> str:
    """A file for --sglang-config: one model's groups of engines."""
    path = U.cache_dir() / f"engines-{U.create_run_id()}.json"  # JSON is YAML
    path.parent.mkdir(parents=True, exist_ok=True)
    models = [{"name": "actor", "server_groups": list(groups)}]
    path.write_text(json.dumps({"sglang": models}, indent=2))
    return str(path)


@dataclass(frozen=True)
class Outcome:
    """What a run left."""

    run_dir: Path

    def metrics(self, kind: str = "rollout") -> list[dict[str, Any]]:
        """Records of metrics.jsonl."""
        lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["kind"] == kind]

    def series(self, name: str) -> list[float]:
        """One number per rollout; fails if it is not there or not finite."""
        values = [record[name] for record in self.metrics()]
        assert values and all(map(math.isfinite, values)), (name, values)
        return values


def train(
    test_file: str,
    words: Sequence[str],
    gpus: int,
    model_type: str,
    script: str = "train.py",
    name: str = "run",
    wandb: bool = True,
) -> Outcome:
    """Run to the end, in a folder of its own."""
    run_dir = U.cache_dir() / "runs" / f"{Path(test_file).stem}-{U.create_run_id()}" / name
    reported = U.get_default_wandb_args(test_file).split() if wandb else []
    U.execute_train([*words, *reported, f"--run-dir={run_dir}"], gpus, model_type, script)
    return Outcome(run_dir)


def assert_trained(outcome: Outcome, rollouts: int = 2, on_policy: bool = True) -> None:
    """It trained on what the engines made; if `on_policy`, with the trainer's weights of then."""
    steps = [record["step"] for record in outcome.metrics()]
    assert len(steps) >= rollouts and steps == sorted(set(steps)), steps
    assert all(norm > 0 for norm in outcome.series("train/grad_norm"))
    difference = max(outcome.series("train/train_rollout_logprob_abs_diff"))
    assert difference < (0.1 if on_policy else 1.0)
