"""Process groups made anew behind Megatron's back change nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_training_goes_on_over_reloads_as_without(hf_model, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    program = Path(__file__).with_name("reload_ranks.py")
    command = [sys.executable, str(program), str(hf_model()), str(tmp_path / "out.json")]
    run = subprocess.run(
        command, env=environment, timeout=240, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["reloaded"] == result["plain"] and len(result["plain"]) == 3
