"""Run layouts (layouts/*.yaml) in a program of several ranks, and compare with Hugging Face."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader

ROLLOUTS = 3  # of two optimizer steps
FULL_LOSS = {"entropy_coef": 0.01, "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k3"}
_HERE = Path(__file__).parent


def is_tied(kind: str) -> bool:
    """Whether the tests use the model with tied embeddings: some with, some without."""
    return kind in ("qwen3", "qwen3_deep")


def case(
    name: str,
    layout: str,
    hf: Path,
    options: dict[str, Any] | None = None,
    loss: dict[str, Any] = FULL_LOSS,
    **more: Any,
) -> dict[str, Any]:
    """A case of train_ranks.py. Two micro-batches per step where there is a pipeline."""
    config = str(_HERE / "layouts" / f"{layout}.yaml")
    return {
        "name": name,
        "hf": str(hf),
        "rollouts": ROLLOUTS,
        "micro_batches": 2 if "pp" in layout else 1,
        "args": {**loss, "config": config, **(options or {})},
        **more,
    }


def run_cases(ranks: int, cases: list[dict[str, Any]], out: Path) -> Path:
    """One start of the ranks for all cases; what they print is in ``out/log``."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, str(_HERE / "train_ranks.py"), str(ranks), str(out)]
    run = subprocess.run(
        [*program, json.dumps(cases)],
        env=environment,
        timeout=420,
        capture_output=True,
        text=True,
        check=False,
    )
    (out / "log").write_text(run.stdout + run.stderr)
    return out


def report(results: Path, name: str, rank: int) -> dict[str, Any]:
    """What a rank wrote about a case."""
    path = results / name / f"rank{rank}.json"
    assert path.is_file(), (results / "log").read_text()[-4000:]
    return json.loads(path.read_text())


def saved_moments(folder: Path, iteration: int) -> dict[str, torch.Tensor]:
    """Adam's moments in a case's checkpoint, whole, whatever the layout was."""
    reader = FileSystemReader(folder / "checkpoint" / f"iter_{iteration:07d}")
    moments = {
        key: torch.empty(entry.size)
        for key, entry in reader.read_metadata().state_dict_metadata.items()
        if "exp_avg" in key
    }
    torch.distributed.checkpoint.load(moments, storage_reader=reader, no_dist=True)
    return moments


def check_against_reference(results: Path, name: str, ranks: int, reference: Any) -> None:
    """Metrics of every rollout on every rank, and the exported weights, to 1e-5."""
    first, *others = (report(results, name, rank) for rank in range(ranks))
    for step, want in enumerate(reference.metrics):
        got = first["metrics"][step]
        for key, value in want.items():
            assert got[key] == pytest.approx(value, rel=1e-5, abs=3e-6), key
            for other in others:
                assert got[key] == other["metrics"][step][key], f"{key} differs between ranks"
    exported = load_file(results / name / "hf" / "model.safetensors")
    assert exported.keys() == reference.weights.keys()
    for key, value in exported.items():
        # Softmax does not see a bias of keys that are not rotated: its gradient is rounding noise,
        # from which Adam makes steps of the learning rate (1e-4).
        tolerance = 1e-3 if key.endswith("k_proj.bias") and "glm4" in name else 1e-5
        torch.testing.assert_close(value, reference.weights[key], rtol=0, atol=tolerance, msg=key)
    assert sum(first["bucket_numels"]) == sum(value.numel() for value in exported.values())
    assert all(sum(other["bucket_numels"]) == 0 for other in others)
