"""The entry point, up to the moment at which something would start."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PROGRAM = """
import json, sys, time
from slime.train import main
code = main(sys.argv[1:])
heavy = sorted({"torch", "ray", "megatron", "sglang", "transformers"} & set(sys.modules))
print(json.dumps([code, heavy, time.process_time()]), file=sys.stderr)
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A right command line."""
    model = tmp_path / "model"
    model.mkdir()
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 128,
        "intermediate_size": 384,
        "max_position_embeddings": 256,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "vocab_size": 100,
    }
    (model / "config.json").write_text(json.dumps(config))
    (model / "tokenizer.json").write_text("{}")
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")  # no tensor
    (tmp_path / "train.jsonl").write_text('{"input": "1+1=", "label": "2"}\n' * 10)
    text = "--hf-checkpoint model --prompt-data train.jsonl --label-key label --rm-type math"
    text += " --rollout-batch-size 4 --n-samples-per-prompt 8 --num-rollout 6 --lr 1e-4"
    return [*text.split(), "--rollout-max-response-len", "12", "--device", "cpu"]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("BUILD_WORKING_DIRECTORY", None)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )


def outcome(done: subprocess.CompletedProcess[str]) -> tuple[int, list[str], float]:
    """Exit code, heavy packages that were imported, seconds of CPU with the interpreter's start."""
    code, heavy, seconds = json.loads(done.stderr.splitlines()[-1])
    return code, heavy, seconds


def test_a_dry_run_is_quick_and_needs_no_heavy_package(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, *words, "--dry-run")
    code, heavy, seconds = outcome(done)
    assert (code, heavy) == (0, [])
    assert seconds < 1.0
    for line in ("train rank 0", "engine 0", "samples per step", "optimizer steps"):
        assert line in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_printed_configuration_is_read_again(tmp_path: Path, words: list[str]) -> None:
    printed = run(tmp_path, *words, "--print-config").stdout
    assert yaml.safe_load(printed)["rollout"]["rollout_batch_size"] == 4
    (tmp_path / "printed.yaml").write_text(printed)
    assert run(tmp_path, "--config", "printed.yaml", "--print-config").stdout == printed


def test_a_wrong_configuration_starts_nothing(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "mine.py").write_text("def take(args): ...")
    wrong = "--rm-type mth --num-layers 3 --buffer-filter-path mine.take --lr x"
    done = run(tmp_path, *words, *wrong.split())
    assert outcome(done)[:2] == (2, [])
    for text in ("wrong in 4 places", "did you mean math?", "cannot be called as (args, rollout"):
        assert text in done.stderr
    assert done.stdout == "" and not (tmp_path / "runs").exists()


def test_two_runs_do_not_share_a_folder(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "mine").mkdir()
    with (tmp_path / "mine" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run(tmp_path, *words, "--run-dir", "mine")
    assert outcome(done)[:2] == (2, [])
    assert "--run-dir = " in done.stderr  # a long path is shown shortened
    assert ": another run is writing to it" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [".lock"]


def test_a_run_folder_that_cannot_be_made_is_no_traceback(words: list[str], tmp_path: Path) -> None:
    done = run(tmp_path, *words, "--run-dir", "/proc/none/of/it", "--train-threads", "1024")
    assert outcome(done)[:2] == (2, [])
    assert "warning: 1 train ranks with 1024 threads each share" in done.stderr
    assert "/proc/none" in done.stderr and "Traceback" not in done.stderr


ASYNC = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"


@pytest.mark.parametrize(
    ("module", "options", "refused"),
    [
        ("train_async", [], ""),
        ("train_async", ["--rollout-function-path", ASYNC], ""),
        ("train_async", ["--colocate"], "--colocate"),
        ("train", ["--colocate"], ""),
        ("train", ["--rollout-function-path", ASYNC], "run slime.train_async"),
    ],
)
def test_what_only_one_entry_can_do(
    tmp_path: Path, words: list[str], module: str, options: list[str], refused: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"slime.{module}", *words, *options, "--dry-run"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == (2 if refused else 0), done.stderr
    assert refused in done.stderr
