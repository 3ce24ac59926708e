"""Two ranks in every layout they allow, against plain Hugging Face training."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import layouts
import pytest
import torch
from forced_routes import add_routes
from hf_models import with_prediction_layer
from safetensors.torch import load_file

# layouts/NAME.yaml -> the models it trains
TRAINED = {
    "tp2": ("qwen3", "qwen2"),
    "tp2-sp": ("qwen3", "qwen2", "glm4", "deepseek_v3"),
    "dp2": ("qwen3", "qwen2", "qwen3_moe"),
    "dp2-do": ("qwen3", "qwen2", "qwen3_moe"),
    "pp2": ("qwen3", "qwen2", "glm4_moe"),
    "pp2-vpp2": ("qwen3_deep",),
    "cp2": ("qwen3", "qwen2", "moonlight"),
    "ep2": ("qwen3_moe", "deepseek_v3"),
    "etp2": ("qwen3_moe",),
    "tp2-ep2": ("qwen3_moe", "glm4_moe"),
    "tp2-etp1": ("qwen3_moe",),
    "pp2-do": ("qwen3",),
    "ep2-do": ("qwen3_moe",),
}
CASES = [(layout, kind) for layout, kinds in TRAINED.items() for kind in kinds]
PREDICTING = ("dp2", "tp2-sp")  # with multi-token-prediction layers
ASYNC_SAVE = ("dp2-do", "tp2-sp")
SAVE_AFTER = 1  # of rollouts 0, 1, 2
# what is sent while other work goes on
OVERLAPPED = {"overlap_grad_reduce": True, "overlap_param_gather": True}
# trained on the engines' routes
ROUTED = ("ep2", "tp2-ep2", "cp2", "pp2")
# a sample of rollout 1, in its second step, has a reward that is no number: where, which
POISONED, POISON = ("dp2", "pp2"), 5
# what resumes from what: the same layout must be exact, another to rounding
RESUMES = {
    "tp2-again": ("tp2-qwen3", "tp2"),
    "dp2-do-again": ("dp2-do-qwen3", "dp2-do"),
    "tp2-as-dp2": ("tp2-qwen3", "dp2"),
    "tp2-sp-as-pp2": ("tp2-sp-qwen3", "pp2"),
    "dp2-do-as-pp2-do": ("dp2-do-qwen3", "pp2-do"),
    "pp2-do-again": ("pp2-do-qwen3", "pp2-do"),
    "dp2-do-as-tp2-do": ("dp2-do-qwen3", "tp2-do"),
    "ep2-again": ("ep2-qwen3_moe", "ep2"),
    "ep2-as-tp2-ep2": ("ep2-qwen3_moe", "tp2-ep2"),
    "ep2-as-dp2": ("ep2-qwen3_moe", "dp2"),
    "dp2-as-ep2": ("dp2-qwen3_moe", "ep2"),
    "ep2-do-as-dp2-do": ("ep2-do-qwen3_moe", "dp2-do"),
    "dp2-do-as-ep2-do": ("dp2-do-qwen3_moe", "ep2-do"),
}


@pytest.fixture(scope="module")
def results(hf_model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One start of two ranks for all cases of this file."""
    saved = {source for source, _ in RESUMES.values()}
    cases = [
        layouts.case(
            f"{layout}-{kind}",
            layout,
            hf_model(kind, layouts.is_tied(kind)),
            save_after=SAVE_AFTER if f"{layout}-{kind}" in saved else None,
            full_disk=(layout, kind) == ("tp2", "qwen3"),
            options={"async_save": layout in ASYNC_SAVE},
        )
        for layout, kind in CASES
    ]
    for name, (source, layout) in RESUMES.items():
        kind = source.rpartition("-")[2]
        hf = hf_model(kind, layouts.is_tied(kind))
        cases.append(layouts.case(name, layout, hf, resume=source))
    mimo = tmp_path_factory.mktemp("mimo") / "model"
    with_prediction_layer(hf_model("qwen2", False), mimo, "mimo")
    cases += [
        layouts.case(f"{layout}-mimo", layout, mimo, options={"enable_mtp_training": True})
        for layout in PREDICTING
    ]
    hf = hf_model("qwen3", True)
    cases.append(layouts.case("dp2-do-overlapped", "dp2-do", hf, options=OVERLAPPED))
    skip = {"no_check_for_nan_in_loss_and_grad": True}
    for layout in POISONED:
        name = f"{layout}-poisoned"
        cases.append(layouts.case(name, layout, hf, options=skip, poison=POISON))
    for layout in ROUTED:
        name, options = f"{layout}-routed", {"use_rollout_routing_replay": True}
        cases.append(layouts.case(name, layout, hf_model("qwen3_moe", False), options=options))
    return layouts.run_cases(2, cases, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def references(hf_model, args_for, rollout_of, reference_of) -> Callable:
    """The oracle's result for a model, computed once for all layouts."""

    @functools.cache
    def get(kind: str, routed: bool = False):
        rollouts = [rollout_of(seed) for seed in range(layouts.ROLLOUTS)]
        if routed:
            rollouts = [add_routes(rollout, seed) for seed, rollout in enumerate(rollouts)]
        args = args_for(hf_model(kind, layouts.is_tied(kind)), **layouts.FULL_LOSS)
        return reference_of(args, rollouts)

    return get


@pytest.mark.parametrize(("layout", "kind"), CASES)
def test_layout_equals_hugging_face(layout, kind, results, references):
    layouts.check_against_reference(results, f"{layout}-{kind}", 2, references(kind))


def test_weights_fetched_during_the_forward_pass_are_there_afterwards(results, references):
    layouts.check_against_reference(results, "dp2-do-overlapped", 2, references("qwen3"))


@pytest.mark.parametrize("layout", ROUTED)
def test_routes_of_the_engines_are_replayed_in_every_layout(layout, results, references):
    reference = references("qwen3_moe", routed=True)
    layouts.check_against_reference(results, f"{layout}-routed", 2, reference)


@pytest.mark.parametrize("name", RESUMES)
def test_resume_equals_the_unbroken_run(name, results):
    source, _ = RESUMES[name]
    resumed, unbroken = (layouts.report(results, case, 0) for case in (name, source))
    assert resumed["begin"] == SAVE_AFTER + 1
    assert len(resumed["metrics"]) == layouts.ROLLOUTS - resumed["begin"]
    exact = name.endswith("-again")
    for key in ("loss", "grad_norm", "kl"):
        got, want = resumed["metrics"][-1][key], unbroken["metrics"][-1][key]
        assert got == (want if exact else pytest.approx(want, rel=1e-5, abs=1e-6)), key
    final = load_file(results / name / "hf" / "model.safetensors")
    for key, value in load_file(results / source / "hf" / "model.safetensors").items():
        torch.testing.assert_close(final[key], value, rtol=0, atol=0 if exact else 1e-5)


@pytest.mark.parametrize("name", RESUMES)
def test_moments_come_through_a_change_of_layout_bit_for_bit(name, results):
    source, _ = RESUMES[name]
    want, got = (layouts.saved_moments(results / case, SAVE_AFTER) for case in (source, name))
    assert got.keys() == want.keys() and any("experts" in k for k in got) == ("moe" in source)
    for key, value in got.items():
        rows = min(len(value), len(want[key]))  # tensor parallelism pads the vocabulary
        assert value.abs().sum() > 0 and torch.equal(value[:rows], want[key][:rows]), key


def test_one_rank_without_space_stops_all_and_the_old_checkpoint_stays(results):
    said = [layouts.report(results, "tp2-qwen3", rank)["full_disk"] for rank in range(2)]
    assert said[0] == said[1]
    assert "rank 1" in said[0] and "rank 0" not in said[0]
    assert f"that of rollout {SAVE_AFTER} is whole".casefold() in said[0].casefold()
    names = {path.name for path in (results / "tp2-qwen3" / "checkpoint").iterdir()}
    assert names == {f"iter_{SAVE_AFTER:07d}", "latest_checkpointed_iteration.txt"}


@pytest.mark.parametrize("layout", POISONED)
def test_a_bad_sample_of_one_rank_skips_the_step_on_all_and_is_named(layout, results):
    reports = [layouts.report(results, f"{layout}-poisoned", rank) for rank in range(2)]
    for report in reports:
        before, bad, after = report["metrics"]
        assert (bad["steps"], bad["skipped_steps"], before["steps"], after["steps"]) == (1, 1, 2, 2)
        assert [m["loss"] for m in report["metrics"]] == [m["loss"] for m in reports[0]["metrics"]]
        assert math.isfinite(bad["loss"]) and math.isfinite(after["grad_norm"])
    (dump,) = (results / f"{layout}-poisoned" / "non_finite").iterdir()
    assert dump.name == "actor_1_step_1"
    run = subprocess.run(
        [sys.executable, "-m", "slime.trainer.replay_step", str(dump)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    lines = re.findall(r"^rank (\d): (.*)$", run.stdout, re.MULTILINE)
    told = {int(rank): json.loads(words) for rank, words in lines}
    assert all(math.isnan(told[rank]["loss"]) for rank in range(2))
    assert [told[rank]["bad_samples"] for rank in range(2)] == [[], [POISON]]


def test_prediction_layers_learn_the_same_in_every_layout(results):
    first, second = (layouts.report(results, f"{name}-mimo", 0) for name in PREDICTING)
    for got, want in zip(first["metrics"], second["metrics"], strict=True):
        for key in ("mtp_loss", "loss", "grad_norm"):
            assert got[key] == pytest.approx(want[key], rel=1e-5, abs=3e-6), key
    weights = [
        load_file(results / f"{name}-mimo" / "hf" / "model.safetensors") for name in PREDICTING
    ]
    assert any("mtp_layers" in name for name in weights[0])
    for key, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][key], rtol=0, atol=1e-5, msg=key)
