"""What a script or a test needs to start a run: models, data, conversion, training.

Every command is a list of arguments: no shell reads it. Models and data sets lie in `models/` and
`datasets/` of the folder `$SLIME_CACHE`, by default where container images keep them.
"""

import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

# GPUs of one machine, by the name of its hardware.
NUM_GPUS_OF_HARDWARE = {"H100": 8, "H200": 8, "B200": 8, "GB200": 4, "GB300": 4}
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")
# What only a shell would act on.
_SHELL = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"}


@dataclass
class ExecuteTrainConfig:
    """How a run is started, beside what it trains."""

    cuda_core_dump: bool = False  # an error on a GPU leaves a core file
    num_nodes: int = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    extra_env_vars: str = ""  # "NAME=value NAME=value", quoted as in a shell


def cache_dir() -> Path:
    """The folder of models and data sets."""
    return Path(os.environ.get("SLIME_CACHE", "/root"))


def exec_command(
    cmd: str | Sequence[str],
    capture_output: bool = False,
    env: Mapping[str, str] | None = None,
) -> str | None:
    """Run a command to its end; a string is split at its spaces, as a shell would split it.

    Returns:
        What it printed, if `capture_output`.

    Raises:
        subprocess.CalledProcessError: it failed.
        ValueError: the string has shell syntax, which would not do what it says.
    """
    words = shlex.split(cmd) if isinstance(cmd, str) else [str(word) for word in cmd]
    if isinstance(cmd, str) and (found := _SHELL & set(words)):
        raise ValueError(f"{sorted(found)[0]!r} in {cmd!r}: no shell runs this; give a list")
    print(f"run: {shlex.join(words)}", flush=True)
    done = subprocess.run(
        words, check=True, text=True, env=env, stdout=subprocess.PIPE if capture_output else None
    )
    return done.stdout if capture_output else None


def hf_download_model(full_name: str) -> str:
    """Fetch a model of the Hugging Face hub into the cache, if it is new; its folder."""
    return _hf_download(full_name, "models")


def hf_download_dataset(full_name: str) -> str:
    """Fetch a data set of the Hugging Face hub into the cache, if it is new; its folder."""
    return _hf_download(full_name, "datasets", "--repo-type=dataset")


def _hf_download(full_name: str, kind: str, *options: str) -> str:
    target = str(cache_dir() / kind / full_name.rpartition("/")[2])
    start = [sys.executable, "-m", "huggingface_hub.cli.hf", "download"]
    exec_command([*start, *options, full_name, f"--local-dir={target}"])
    return target


def convert_checkpoint(
    model_name: str,
    megatron_model_type: str | None,
    num_gpus_per_node: int,
    multinode: bool = False,
    extra_args: str | Sequence[str] = "",
    dir_dst: str = "/root",
    hf_checkpoint: str | None = None,
) -> str:
    """Make a torch_dist checkpoint of a Hugging Face one, for `--ref-load`; its folder.

    Nothing is done where it is there already. The architecture is read from the model's own
    config.json; `megatron_model_type` only names it in messages. `extra_args` may have the sizes of
    the parallel layout. With `multinode` every node calls this; SLURM's variables and MASTER_ADDR
    say where they meet.
    """
    source = hf_checkpoint or str(cache_dir() / "models" / model_name)
    target = str(Path(dir_dst) / f"{model_name}_torch_dist")
    if (Path(target) / "latest_checkpointed_iteration.txt").exists():
        print(f"{target} is there already ({megatron_model_type or model_name})")
        return target
    start = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={num_gpus_per_node}"]
    if multinode:
        start += [
            f"--nnodes={os.environ['SLURM_JOB_NUM_NODES']}",
            f"--node-rank={os.environ['SLURM_NODEID']}",
            f"--master-addr={os.environ['MASTER_ADDR']}",
        ]
    else:
        start += ["--standalone"]
    options = [f"--hf-checkpoint={source}", f"--save={target}", *_words(extra_args)]
    ranks = [f"--actor-num-gpus-per-node={num_gpus_per_node}"]
    if multinode:
        ranks += [f"--actor-num-nodes={os.environ['SLURM_JOB_NUM_NODES']}"]
    exec_command([*start, "-m", "slime.launch.convert_checkpoint", *options, *ranks])
    return target


def fp8_cast_bf16(path_src: str | Path, path_dst: str | Path) -> None:
    """Write a checkpoint with weights in FP8 blocks as one in bf16, if it is not there already."""
    if (Path(path_dst) / "config.json").exists():
        print(f"{path_dst} is there already")
        return
    exec_command([sys.executable, "-m", "slime.launch.fp8_cast_bf16", str(path_src), str(path_dst)])


def execute_train(
    train_args: str | Sequence[str],
    num_gpus_per_node: int,
    megatron_model_type: str | None,
    train_script: str = "train.py",
    before_ray_job_submit: Callable[[], object] | None = None,
    extra_env_vars: Mapping[str, str] | None = None,
    config: ExecuteTrainConfig | None = None,
) -> None:
    """Train, and wait for the end.

    Args:
        train_args: Options of the run. A string is split as a shell would split it.
        num_gpus_per_node: For `--num-gpus-per-node`.
        megatron_model_type: Only printed: the architecture is read from `--hf-checkpoint`.
        train_script: `train.py`, or another program of slime's (`train_async.py`), or a file.
        before_ray_job_submit: Called when all is ready to start.
        extra_env_vars: For the run's processes.
        config: Nodes: with more than one the run joins the Ray that was started on them.

    Raises:
        subprocess.CalledProcessError: the run failed; it has said why.
    """
    config = config or ExecuteTrainConfig()
    command = [sys.executable, *_program(train_script), *_words(train_args)]
    command += [f"--num-gpus-per-node={num_gpus_per_node}"]
    if config.num_nodes > 1:
        command += ["--ray-address=auto"]
    print(f"model: {megatron_model_type or 'as --hf-checkpoint says'}")
    if before_ray_job_submit is not None:
        before_ray_job_submit()
    exec_command(command, env={**os.environ, **_environment(config), **(extra_env_vars or {})})


def _program(train_script: str) -> list[str]:
    path = Path(train_script)
    if path.suffix == ".py" and path.parent == Path() and not path.exists():
        return ["-m", f"slime.{path.stem}"]
    return [train_script]


def _words(text: str | Sequence[str]) -> list[str]:
    return shlex.split(text) if isinstance(text, str) else [str(word) for word in text]


def _environment(config: ExecuteTrainConfig) -> dict[str, str]:
    found = {"PYTHONUNBUFFERED": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    if config.cuda_core_dump:
        found |= {
            "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
            "CUDA_COREDUMP_FILE": "cuda_coredump_%h_%p_%t",
        }
    for word in shlex.split(config.extra_env_vars):
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise ValueError(f"extra_env_vars: {word!r} is not NAME=value")
        found[name] = value
    return found


def get_default_wandb_args(
    test_file: str, run_name_prefix: str | None = None, run_id: str | None = None
) -> str:
    """Options that report a test's run to wandb; none if there is no WANDB_API_KEY.

    The key stays in the environment: every user of a machine can read command lines.
    """
    if not os.environ.get("WANDB_API_KEY"):
        return ""
    group = run_id or create_run_id()
    words = ["--use-wandb", f"--wandb-project=slime-{Path(test_file).stem}"]
    words += [f"--wandb-group={f'{run_name_prefix}_' if run_name_prefix else ''}{group}"]
    return shlex.join([*words, "--disable-wandb-random-suffix"])


def create_run_id() -> str:
    """A name that no other run has, sorted by time."""
    return f"{datetime.now().astimezone():%y%m%d-%H%M%S}-{secrets.randbelow(1000):03d}"


def get_bool_env_var(name: str, default: str = "false") -> bool:
    """A switch in the environment: true, 1, yes or false, 0, no.

    Raises:
        ValueError: it is something else.
    """
    value = os.environ.get(name, default).strip().lower()
    if value not in _TRUE + _FALSE:
        raise ValueError(f"{name}={value}: write true or false")
    return value in _TRUE


def get_env_enable_infinite_run() -> bool:
    """Whether tests train on and on (SLIME_TEST_ENABLE_INFINITE_RUN)."""
    return get_bool_env_var("SLIME_TEST_ENABLE_INFINITE_RUN")
