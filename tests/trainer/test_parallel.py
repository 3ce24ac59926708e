"""Two ranks in every layout they allow, against plain Hugging Face training."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROLLOUTS = 3
FULL_LOSS = {"entropy_coef": 0.01, "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k3"}
TP = {"tensor_model_parallel_size": 2}
LAYOUTS = {
    "tp2": TP,
    "tp2-sp": {**TP, "sequence_parallel": True},
    "dp2": {},
    "dp2-distributed-optimizer": {"use_distributed_optimizer": True},
    "pp2": {"pipeline_model_parallel_size": 2},
    "cp2": {"context_parallel_size": 2},
}
ASYNC_SAVE = ("dp2-distributed-optimizer", "tp2-sp")
SAVE_AFTER = 1  # of rollouts 0, 1, 2
# what resumes from what: the same layout must be exact, another to rounding
RESUMES = {
    "tp2-again": ("tp2", TP),
    "dp2-do-again": ("dp2-distributed-optimizer", {"use_distributed_optimizer": True}),
    "tp2-as-dp2": ("tp2", {}),
    "tp2-sp-as-pp2": ("tp2-sp", {"pipeline_model_parallel_size": 2}),
    "dp2-do-as-pp2-do": (
        "dp2-distributed-optimizer",
        {"pipeline_model_parallel_size": 2, "use_distributed_optimizer": True},
    ),
    "dp2-do-as-tp2-do": (
        "dp2-distributed-optimizer",
        {**TP, "use_distributed_optimizer": True},
    ),
}


def _cases(hf_model) -> list[dict]:
    resumed = [
        {
            "name": name,
            "hf": str(hf_model("qwen3", True)),
            "rollouts": ROLLOUTS,
            "resume": f"{source}-qwen3",
            "args": {**FULL_LOSS, **layout},
        }
        for name, (source, layout) in RESUMES.items()
    ]
    trained = [
        {
            "name": f"{name}-{kind}",
            "hf": str(hf_model(kind, tied)),
            "rollouts": ROLLOUTS,
            "save_after": SAVE_AFTER,
            "full_disk": name == "tp2",
            "args": {**FULL_LOSS, **layout, "async_save": name in ASYNC_SAVE},
        }
        for name, layout in LAYOUTS.items()
        for kind, tied in (("qwen3", True), ("qwen2", False))
    ]
    return trained + resumed


@pytest.fixture(scope="module")
def results(hf_model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One start of two ranks for all cases of this file."""
    out = tmp_path_factory.mktemp("ranks")
    program = Path(__file__).with_name("train_ranks.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(program), str(out), json.dumps(_cases(hf_model))]
    run = subprocess.run(
        command, env=environment, timeout=240, capture_output=True, text=True, check=False
    )
    (out / "log").write_text(run.stdout + run.stderr)
    return out


@pytest.fixture(scope="module")
def references(hf_model, args_for, rollout_of, reference_of) -> Callable:
    """The oracle's result for a model, computed once for all layouts."""

    @functools.cache
    def get(kind: str, tied: bool):
        rollouts = [rollout_of(seed) for seed in range(ROLLOUTS)]
        return reference_of(args_for(hf_model(kind, tied), **FULL_LOSS), rollouts)

    return get


def _report(results: Path, case: str, rank: int) -> dict:
    path = results / case / f"rank{rank}.json"
    assert path.is_file(), (results / "log").read_text()[-4000:]
    return json.loads(path.read_text())


@pytest.mark.parametrize(("kind", "tied"), [("qwen3", True), ("qwen2", False)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_equals_hugging_face(layout, kind, tied, results, references):
    reference = references(kind, tied)
    first, second = (_report(results, f"{layout}-{kind}", rank) for rank in range(2))
    for got, other, want in zip(
        first["metrics"], second["metrics"], reference.metrics, strict=True
    ):
        for key, value in want.items():
            assert got[key] == pytest.approx(value, rel=1e-5, abs=3e-6), key
            assert got[key] == other[key], f"{key} differs between the ranks"
    exported = load_file(results / f"{layout}-{kind}" / "hf" / "model.safetensors")
    for name, value in exported.items():
        torch.testing.assert_close(value, reference.weights[name], rtol=0, atol=1e-5)
    assert reference.weights.keys() - exported.keys() <= ({"lm_head.weight"} if tied else set())
    assert sum(first["bucket_numels"]) == sum(value.numel() for value in exported.values())
    assert sum(second["bucket_numels"]) == 0


@pytest.mark.parametrize("name", RESUMES)
def test_resume_equals_the_unbroken_run(name, results):
    source, layout = RESUMES[name]
    resumed, unbroken = (_report(results, case, 0) for case in (name, f"{source}-qwen3"))
    assert resumed["begin"] == SAVE_AFTER + 1
    assert len(resumed["metrics"]) == ROLLOUTS - resumed["begin"]
    exact = layout == LAYOUTS[source]
    for key in ("loss", "grad_norm", "kl"):
        got, want = resumed["metrics"][-1][key], unbroken["metrics"][-1][key]
        assert got == (want if exact else pytest.approx(want, rel=1e-5, abs=1e-6)), key
    final = load_file(results / name / "hf" / "model.safetensors")
    for key, value in load_file(results / f"{source}-qwen3" / "hf" / "model.safetensors").items():
        torch.testing.assert_close(final[key], value, rtol=0, atol=0 if exact else 1e-5)


def test_one_rank_without_space_stops_all_and_the_old_checkpoint_stays(results):
    said = [_report(results, "tp2-qwen3", rank)["full_disk"] for rank in range(2)]
    assert said[0] == said[1]
    assert "rank 1" in said[0] and "rank 0" not in said[0]
    assert f"that of rollout {SAVE_AFTER} is whole".casefold() in said[0].casefold()
    names = {path.name for path in (results / "tp2-qwen3" / "checkpoint").iterdir()}
    assert names == {f"iter_{SAVE_AFTER:07d}", "latest_checkpointed_iteration.txt"}
