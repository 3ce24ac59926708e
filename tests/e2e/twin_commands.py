"""The CPU twin of slime.utils.external_utils.command_utils: the same calls, a tiny model.

Nothing is downloaded: a model's name gives a tiny one of its architecture, built by Bazel
(tests/e2e/models), any data set's name the one of the quick start. What a run makes smaller or
leaves out is printed, and written to twin.json for whoever wants the list.
"""

import atexit
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from slime.launch import commands
from slime.launch.commands import (
    NUM_GPUS_OF_HARDWARE,
    ExecuteTrainConfig,
    create_run_id,
    exec_command,
    get_bool_env_var,
    get_default_wandb_args,
    get_env_enable_infinite_run,
)
from tests.e2e.outside_engine import outside_engine
from tests.e2e.ray_node import ray_head
from tests.e2e.twin import Twin, small_engines, twin_of

__all__ = [
    "NUM_GPUS_OF_HARDWARE",
    "ExecuteTrainConfig",
    "cache_dir",
    "convert_checkpoint",
    "create_run_id",
    "exec_command",
    "execute_train",
    "fp8_cast_bf16",
    "get_bool_env_var",
    "get_default_wandb_args",
    "get_env_enable_infinite_run",
    "hf_download_dataset",
    "hf_download_model",
]
BUILT = Path(os.environ.get("SLIME_RUNFILES", "."))
DATA = BUILT / "examples/quickstart/data"
# Model -> the tiny one of its architecture.
TINY = {
    "GLM-Z1-9B-0414": "tests/e2e/models/glm4",
    "MiMo-7B-RL": "tests/e2e/models/mimo",
    "Moonlight-16B-A3B-Instruct": "tests/e2e/models/moonlight",
    "Qwen3-0.6B": "examples/quickstart/model",
    "Qwen3-30B-A3B": "tests/e2e/models/qwen3_moe",
    "Qwen3-4B": "examples/quickstart/model",
    "Qwen3-VL-4B-Instruct": "examples/quickstart/model",  # of texts alone
}
WARM_SLOTS = 4  # of the shared Ray: more than any twin has ranks
# What a run's own engines are for.
OWN_ENGINES = ("--debug-", "--rollout-external-engine-addrs", "--sglang-", "--use-rollout-routing")


def cache_dir() -> Path:
    """A folder of this test alone."""
    return Path(os.environ.get("TEST_TMPDIR") or tempfile.gettempdir()) / f"twin-{os.getpid()}"


def hf_download_model(full_name: str) -> str:
    """The tiny model of the same architecture."""
    return str(BUILT / TINY[full_name.rpartition("/")[2]])


def hf_download_dataset(full_name: str) -> str:
    """The tiny data set, whatever the name."""
    return str(DATA)


def convert_checkpoint(
    model_name: str,
    megatron_model_type: str | None,
    num_gpus_per_node: int,
    multinode: bool = False,
    extra_args: str | Sequence[str] = "",
    dir_dst: str = "/root",
    hf_checkpoint: str | None = None,
) -> str:
    """The tiny model's checkpoint, made by one rank."""
    where = {"dir_dst": str(cache_dir()), "hf_checkpoint": hf_download_model(model_name)}
    return commands.convert_checkpoint(model_name, megatron_model_type, 1, **where)


def fp8_cast_bf16(path_src: str | Path, path_dst: str | Path) -> None:
    """Nothing: tiny models are no FP8."""


def small_config(path: Path, twin: Twin) -> int:
    """Count down the engines of an --sglang-config file, in the file; the engines it has then."""
    config, count = small_engines(json.loads(path.read_text()))
    path.write_text(json.dumps(config))
    twin.options["--rollout-num-gpus"] = [str(count)]
    twin.smaller.append(f"{count} engines of one rank in --sglang-config")
    return count


@cache
def warm(model: str) -> tuple[str, str]:
    """The addresses of a Ray and of an engine for all runs of this process; they end with it."""
    stack = ExitStack()
    atexit.register(stack.close)
    ray = stack.enter_context(ray_head(WARM_SLOTS))
    return ray, stack.enter_context(outside_engine(model)).address


def share(twin: Twin) -> None:
    """Send the run to the warm Ray and engine, if nothing of it is about engines."""
    if any(flag.startswith(OWN_ENGINES) for flag in twin.options):
        return
    ray, engine = warm(twin.options["--hf-checkpoint"][0])
    twin.options |= {"--ray-address": [ray], "--rollout-external-engine-addrs": [engine]}
    twin.smaller.append("Ray and the engine: those that other twins use too")


def execute_train(
    train_args: str | Sequence[str],
    num_gpus_per_node: int,
    megatron_model_type: str | None,
    train_script: str = "train.py",
    before_ray_job_submit: Callable[[], object] | None = None,
    extra_env_vars: Mapping[str, str] | None = None,
    config: ExecuteTrainConfig | None = None,
) -> None:
    """Train the twin: SLIME_TWIN_RANKS and SLIME_TWIN_ENGINES (1 each) say how many.

    With SLIME_TWIN_SHARED=1 runs of one process use one Ray and one engine where they can.
    """
    words = shlex.split(train_args) if isinstance(train_args, str) else train_args
    ranks = int(os.environ.get("SLIME_TWIN_RANKS", "1"))
    engines = int(os.environ.get("SLIME_TWIN_ENGINES", "1"))
    twin = twin_of(words, DATA, ranks, engines)
    if "--sglang-config" in twin.options:
        engines = small_config(Path(twin.options["--sglang-config"][0]), twin)
    if os.environ.get("SLIME_TWIN_SHARED") == "1":
        share(twin)
    print(twin.report, flush=True)
    if outputs := os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR"):
        record = {"words": twin.words, "smaller": twin.smaller, "left_out": twin.left_out}
        Path(outputs, "twin.json").write_text(json.dumps(record, indent=2) + "\n")
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), **(extra_env_vars or {})}
    commands.execute_train(
        twin.words,
        ranks + engines,
        megatron_model_type,
        train_script,
        before_ray_job_submit,
        environment,
    )
