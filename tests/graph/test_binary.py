"""slime_binary and python_artifact: declared packages and no others, also in child processes."""

import json
import os
import subprocess
from pathlib import Path

HERE = Path(os.environ["SLIME_RUNFILES"], "tests/graph")


def test_as_build_action():
    seen = json.loads((HERE / "probed/probe.json").read_text())
    assert seen["child"] == seen["numpy"]
    assert seen["input"].startswith('"""What the build graph promises')
    assert seen["threads"] == "1"
    assert not seen["torch"]


def test_as_a_user_runs_it(tmp_path: Path):
    """What `bazel run` does: the caller's folder is named, and nothing of our own path."""
    (tmp_path / "in.txt").write_text("first\nsecond\n")
    env = {"BUILD_WORKING_DIRECTORY": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [str(HERE / "probe"), "in.txt", "out.json"]
    subprocess.run(command, check=True, env=env, cwd="/")
    seen = json.loads((tmp_path / "out.json").read_text())
    assert seen["folder"] == str(tmp_path)
    assert seen["input"] == "first"
    assert seen["child"] == seen["numpy"]
    assert not seen["torch"]
    assert Path(seen["runfiles"], "tests/graph/probe.py").exists()
