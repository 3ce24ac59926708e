"""From the options of a GPU test to those of its CPU twin: the same run, smaller.

Pure: a list of words goes in, a list comes out, with a line for everything that was changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What only GPUs can do, and why. A flag that ends in * stands for all that begin so.
DEVICE_ONLY = {
    "--attention-backend": "a CPU has one attention",
    "--colocate": "train ranks and engines share a CPU anyway",
    "--fp8*": "FP8 kernels",
    "--micro-batch-size": "the twin packs by tokens",
    "--moe-enable-deepep": "DeepEP",
    "--moe-token-dispatcher-type": "the one of CPUs",
    "--multimodal-keys": "the processor of pictures wants torchvision, so the twin has texts",
    "--offload*": "GPU memory",
    "--overlap-cpu-optimizer-d2h-h2d": "GPU memory",
    "--recompute-*": "GPU memory",
    "--sglang-attention-backend": "the one of CPUs",
    "--sglang-cuda-graph-*": "CUDA graphs",
    "--sglang-dp-size": "one rank per engine",
    "--sglang-enable-*": "several ranks per engine",
    "--sglang-ep-size": "one rank per engine",
    "--sglang-mem-fraction-static": "GPU memory",
    "--sglang-moe-*": "GPU kernels",
    "--sglang-speculative-*": "no speculation on CPUs",
    "--train-memory-margin-bytes": "GPU memory",
    "--update-weight-buffer-size": "GPU memory",
}
# What stays, and what does its work on a CPU.
STAND_INS = {
    "--sglang-disaggregation-transfer-backend": "Mooncake's transport; the kernel copies instead",
}
# The sizes of a layout; with two ranks the first that is above 1 stays at 2.
LAYOUT = (
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
)
# At most so much of each.
LIMITS = {
    "--actor-num-nodes": 1,
    "--critic-num-nodes": 1,
    "--critic-num-gpus-per-node": 1,
    "--eval-interval": 2,
    "--eval-max-response-len": 8,
    "--log-probs-max-tokens-per-gpu": 512,
    "--max-tokens-per-gpu": 512,
    "--n-samples-per-eval-prompt": 1,
    "--n-samples-per-prompt": 4,
    "--num-critic-only-steps": 1,
    "--num-rollout": 3,
    "--over-sampling-batch-size": 6,
    "--prefill-num-servers": 1,
    "--rollout-batch-size": 4,
    "--rollout-max-response-len": 8,
    "--rollout-num-gpus-per-engine": 1,
    "--save-interval": 1,
}
# The tiny data set has these keys, and a reward of its own that random models get some of.
REWARD = "tests.e2e.reward.score"
PROMPTS = {
    "--apply-chat-template": [],
    "--custom-rm-path": [REWARD],
    "--input-key": ["input"],
    "--label-key": ["label"],
}
NOT_PROMPTS = ("--reward-key", "--eval-reward-key", "--rm-type", "--rollout-max-prompt-len")
Options = dict[str, list[str]]


@dataclass
class Twin:
    """The twin's options; for people: what it makes smaller, and what it leaves out."""

    options: Options
    smaller: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        """The command line."""
        return [word for flag, values in self.options.items() for word in (flag, *values)]

    @property
    def report(self) -> str:
        """What a test prints."""
        lines = ["CPU twin of this test"]
        lines += [f"  smaller   {line}" for line in self.smaller]
        return "\n".join(lines + [f"  left out  {line}" for line in self.left_out])


def parse(words: Sequence[str]) -> Options:
    """Flags and their values, in order; the last of a repeated flag counts.

    Raises:
        ValueError: a value stands before any flag.
    """
    options: Options = {}
    flag = None
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            options[flag] = [value] if equals else []
        elif flag is None:
            raise ValueError(f"{word!r} stands before any option")
        else:
            options[flag].append(word)
    return options


def twin_of(words: Sequence[str], data: Path, ranks: int = 1, engines: int = 1) -> Twin:
    """Map a GPU test's options.

    Args:
        words: what the test gives `execute_train`.
        data: the folder of the tiny data set (train.jsonl, eval.jsonl).
        ranks: train ranks of the twin: 1, or 2 with the first parallel size above 1 kept at 2.
        engines: engines of the twin.
    """
    twin = Twin(parse(words))
    full = dict(twin.options)
    for step in (_drop, _limit, _prompts, _evaluation):
        step(twin, data)
    _layout(twin, ranks)
    _resize(twin, "--rollout-num-gpus", engines)
    if "--global-batch-size" in full:
        _resize(twin, "--global-batch-size", _global_batch(full, twin.options))
    return twin


def _matches(flag: str) -> str | None:
    """The reason why a flag is for GPUs only."""
    for pattern, reason in DEVICE_ONLY.items():
        if flag == pattern or (pattern.endswith("*") and flag.startswith(pattern[:-1])):
            return reason
    return None


def _drop(twin: Twin, data: Path) -> None:
    for flag in [flag for flag in twin.options if _matches(flag)]:
        values = twin.options.pop(flag)
        twin.left_out.append(f"{' '.join([flag, *values])}: {_matches(flag)}")
    for flag in STAND_INS.keys() & twin.options.keys():
        twin.left_out.append(f"{' '.join([flag, *twin.options[flag]])}: {STAND_INS[flag]}")


def _limit(twin: Twin, data: Path) -> None:
    for flag, limit in LIMITS.items():
        if flag in twin.options:
            _resize(twin, flag, min(int(twin.options[flag][0]), limit))


def _resize(twin: Twin, flag: str, size: int) -> None:
    if flag in twin.options and int(twin.options[flag][0]) != size:
        twin.smaller.append(f"{flag} {twin.options[flag][0]} -> {size}")
        twin.options[flag] = [str(size)]


def _prompts(twin: Twin, data: Path) -> None:
    if "--prompt-data" not in twin.options:
        return
    twin.options["--prompt-data"] = [str(data / "train.jsonl")]
    for flag in NOT_PROMPTS:
        twin.options.pop(flag, None)
    twin.options |= PROMPTS
    twin.smaller.append(f"prompts and rewards: the tiny data set, {REWARD}")


def _evaluation(twin: Twin, data: Path) -> None:
    if "--eval-prompt-data" in twin.options:
        name = twin.options["--eval-prompt-data"][0]
        twin.options["--eval-prompt-data"] = [name, str(data / "eval.jsonl@[0:16]")]


def _layout(twin: Twin, ranks: int) -> None:
    kept = next(_above_one(twin.options), None) if ranks == 2 else None
    for flag in LAYOUT:
        if flag in twin.options and flag != kept:
            _resize(twin, flag, 1)
    if kept:
        _resize(twin, kept, 2)
    _resize(twin, "--actor-num-gpus-per-node", ranks)
    if kept != "--tensor-model-parallel-size" and "--sequence-parallel" in twin.options:
        del twin.options["--sequence-parallel"]
        twin.left_out.append("--sequence-parallel: one tensor-parallel rank")


def _above_one(options: Options) -> Iterator[str]:
    return (flag for flag in LAYOUT if flag in options and int(options[flag][0]) > 1)


def _global_batch(full: Options, small: Options) -> int:
    """As many optimizer steps per rollout as the GPU test takes."""
    return max(1, _samples(small) * int(full["--global-batch-size"][0]) // _samples(full))


def _samples(options: Options) -> int:
    """Samples of one rollout."""
    per_prompt = options.get("--n-samples-per-prompt", ["1"])[0]
    return int(options["--rollout-batch-size"][0]) * int(per_prompt)


def small_engines(config: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """An --sglang-config with one engine of one rank in each group; the ranks of all.

    Groups of GPUs that stay free of engines go: a CPU has no such thing.
    """
    models = []
    for model in config["sglang"]:
        groups = [g for g in model["server_groups"] if g["worker_type"] != "placeholder"]
        small = [{**group, "num_gpus": 1, "num_gpus_per_engine": 1} for group in groups]
        models.append({**model, "server_groups": small})
    return {"sglang": models}, sum(len(model["server_groups"]) for model in models)
