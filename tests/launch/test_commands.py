"""What scripts call: commands reach programs word by word, without a shell; failures are errors."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slime.launch import commands
from slime.launch.commands import ExecuteTrainConfig, exec_command, execute_train

# Stands where Python is: writes down how it was called.
RECORDER = """#!{python}
import json, os, sys
with open({out!r}, "w") as file:
    json.dump({{"argv": sys.argv[1:], "env": dict(os.environ)}}, file)
"""


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``called()`` returns what the program that Python would have been was given."""
    program, out = tmp_path / "program", tmp_path / "called.json"
    program.write_text(RECORDER.format(python=sys.executable, out=str(out)))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("SLIME_CACHE", str(tmp_path / "cache"))
    return lambda: json.loads(out.read_text())


def test_a_string_is_split_and_no_shell_reads_it(tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1:])"
    command = f"{sys.executable} -c '{code}' 'a b' $HOME"
    assert exec_command(command, capture_output=True) == "['a b', '$HOME']\n"
    listed = [sys.executable, "-c", code, "; touch x", tmp_path]
    assert exec_command(listed, capture_output=True) == f"['; touch x', '{tmp_path}']\n"
    assert exec_command([sys.executable, "-c", ""]) is None


@pytest.mark.parametrize("command", ["a | b", "a && b", "a ; b", "a > b", "a &"])
def test_shell_syntax_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match="no shell runs this"):
        exec_command(command)


def test_a_failure_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError) as error:
        exec_command([sys.executable, "-c", "raise SystemExit(3)"])
    assert error.value.returncode == 3


def test_training_gets_its_arguments_as_words(called) -> None:
    before = []
    execute_train(
        "--lr 1e-6 --rollout-stop 'a b'",
        num_gpus_per_node=8,
        megatron_model_type="qwen3-4B",
        train_script="train_async.py",
        before_ray_job_submit=lambda: before.append("ready"),
        extra_env_vars={"ONE": "1"},
        config=ExecuteTrainConfig(num_nodes=1, extra_env_vars="TWO='2 3' ONE=0"),
    )
    assert before == ["ready"]
    options = ["--lr", "1e-6", "--rollout-stop", "a b", "--num-gpus-per-node=8"]
    assert called()["argv"] == ["-m", "slime.train_async", *options]
    env = called()["env"]
    assert (env["ONE"], env["TWO"]) == ("1", "2 3")
    assert "CUDA_COREDUMP_FILE" not in env


def test_several_nodes_join_their_ray_and_cores_are_dumped(called, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    config = ExecuteTrainConfig(num_nodes=2, cuda_core_dump=True)
    execute_train(["--lr", "1"], 4, None, train_script=str(script), config=config)
    expected = [str(script), "--lr", "1", "--num-gpus-per-node=4", "--ray-address=auto"]
    assert called()["argv"] == expected
    assert called()["env"]["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == "1"


def test_a_wrong_variable_is_refused() -> None:
    config = ExecuteTrainConfig(extra_env_vars="A=1 B")
    with pytest.raises(ValueError, match="'B' is not NAME=value"):
        execute_train([], 1, None, config=config)


def test_downloads_go_to_the_cache(called, tmp_path: Path) -> None:
    assert commands.hf_download_dataset("a/math") == str(tmp_path / "cache/datasets/math")
    assert called()["argv"][-3:] == [
        "--repo-type=dataset",
        "a/math",
        f"--local-dir={tmp_path}/cache/datasets/math",
    ]
    commands.hf_download_model("b/Qwen")
    assert called()["argv"][-1] == f"--local-dir={tmp_path}/cache/models/Qwen"


def test_conversion_starts_one_process_per_rank(called, tmp_path: Path, monkeypatch) -> None:
    for name, value in {"JOB_NUM_NODES": "2", "NODEID": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("MASTER_ADDR", "node0")
    arguments = ("Qwen", "qwen", 4, True, "--tensor-model-parallel-size 2", str(tmp_path))
    assert commands.convert_checkpoint(*arguments) == f"{tmp_path}/Qwen_torch_dist"
    argv = called()["argv"]
    start = "-m torch.distributed.run --nproc-per-node=4 --nnodes=2 --node-rank=1"
    assert argv[:8] == [
        *start.split(),
        "--master-addr=node0",
        "-m",
        "slime.launch.convert_checkpoint",
    ]
    assert argv[8:] == [
        f"--hf-checkpoint={tmp_path}/cache/models/Qwen",
        f"--save={tmp_path}/Qwen_torch_dist",
        "--tensor-model-parallel-size",
        "2",
        "--actor-num-gpus-per-node=4",
        "--actor-num-nodes=2",
    ]


def test_a_conversion_that_is_there_is_kept(called, tmp_path: Path) -> None:
    folder = tmp_path / "Qwen_torch_dist"
    folder.mkdir()
    (folder / "latest_checkpointed_iteration.txt").write_text("0")
    commands.convert_checkpoint("Qwen", None, 1, dir_dst=str(tmp_path))
    with pytest.raises(FileNotFoundError):
        called()


def test_wandb_only_with_a_key_which_no_command_line_shows(monkeypatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert commands.get_default_wandb_args("tests/test_a.py") == ""
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    words = commands.get_default_wandb_args("tests/test_a.py", "pre", "r1").split()
    assert words[:3] == ["--use-wandb", "--wandb-project=slime-test_a", "--wandb-group=pre_r1"]
    assert "secret" not in " ".join(words)


@pytest.mark.parametrize(("value", "meaning"), [("1", True), ("True", True), ("no", False)])
def test_switches_of_the_environment(monkeypatch, value: str, meaning: bool) -> None:
    monkeypatch.setenv("SLIME_TEST_ENABLE_INFINITE_RUN", value)
    assert commands.get_env_enable_infinite_run() is meaning
    assert commands.get_bool_env_var("NOT_SET_ANYWHERE", "true") is True


def test_a_switch_that_is_neither_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("SWITCH", "maybe")
    with pytest.raises(ValueError, match="SWITCH=maybe"):
        commands.get_bool_env_var("SWITCH")


def test_run_ids_differ() -> None:
    assert len({commands.create_run_id() for _ in range(20)}) > 1


def test_no_default_depends_on_where_it_is_imported() -> None:
    assert inspect.signature(execute_train).parameters["config"].default is None
    assert os.environ.get("SLURM_JOB_NUM_NODES", "1") == str(ExecuteTrainConfig().num_nodes)
