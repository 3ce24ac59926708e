"""A fresh process: quick, and without the heavy packages."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slime.arguments.parse import parse_args

PROGRAM = """
import json, sys, time
start = time.process_time()
from slime.arguments import parse_args
from slime.arguments.plan import build_plan, render
from slime.arguments.print_config import render_config
args = parse_args(argv=sys.argv[1:])
text = render(build_plan(args)) + render_config(args)
heavy = sorted({"torch", "ray", "megatron", "sglang", "transformers", "numpy"} & set(sys.modules))
print(json.dumps({"seconds": time.process_time() - start, "heavy": heavy, "characters": len(text)}))
"""


def test_a_dry_run_is_quick_and_imports_nothing_heavy(argv: list[str]) -> None:
    words = [*argv, "--sglang-log-level", "info", "--router-policy", "random"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    report = json.loads(done.stdout)
    assert report["heavy"] == []
    assert report["seconds"] < 1.0
    assert report["characters"] > 1000


def test_help_is_grouped_and_quick() -> None:
    start = time.process_time()
    with pytest.raises(SystemExit) as caught:
        parse_args(argv=["--help"])
    assert caught.value.code == 0
    assert time.process_time() - start < 1.0


def test_help_names_every_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_args(argv=["--help"])
    text = capsys.readouterr().out
    for group in ("run", "cluster", "data", "rollout", "engines", "reward", "algorithm", "train"):
        assert f"\n{group}: " in text
    assert "--optimizer-cpu-offload" in text


def test_a_large_data_file_does_not_slow_the_start(argv: list[str], prompts: Path) -> None:
    prompts.write_text('{"input": "1+1=", "label": "2"}\n' * 300_000)
    start = time.process_time()
    args = parse_args(argv=argv)
    assert time.process_time() - start < 2.0
    assert args.num_rollout_per_epoch == 300_000 // 16
