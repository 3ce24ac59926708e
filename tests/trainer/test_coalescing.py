"""Gradients of what tensor-parallel ranks hold whole: summed in pieces as they would be at once."""

from __future__ import annotations

import importlib
from pathlib import Path

import layouts
import pytest
import torch
from safetensors.torch import load_file

KINDS = ("qwen3", "deepseek_v3")  # norms alone; routers and compressing projections too
BOUND = 1000  # bytes: a few norms of the tiny models, less than a router
WAYS = {"whole": "whole", "pieces": BOUND, "default": None}


@pytest.fixture(scope="module")
def results(hf_model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks with tensor and sequence parallelism, each model in each way."""
    cases = [
        layouts.case(f"{way}-{kind}", "tp2-sp", hf_model(kind, layouts.is_tied(kind)), coalesce=how)
        for kind in KINDS
        for way, how in WAYS.items()
    ]
    return layouts.run_cases(2, cases, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["pieces", "default"])
def test_pieces_train_as_megatrons_one_buffer_bit_for_bit(way, kind, results):
    for rank in range(2):
        ours, want = (layouts.report(results, f"{w}-{kind}", rank) for w in (way, "whole"))
        for got, expected in zip(ours["metrics"], want["metrics"], strict=True):
            assert got["grad_norm"] == expected["grad_norm"] and got["loss"] == expected["loss"]
    weights = [
        load_file(results / f"{w}-{kind}" / "hf" / "model.safetensors") for w in (way, "whole")
    ]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


@pytest.mark.parametrize("kind", KINDS)
def test_no_copy_is_larger_than_the_bound(kind, results):
    copies = {way: layouts.report(results, f"{way}-{kind}", 0)["copies"] for way in WAYS}
    steps = 2 * layouts.ROLLOUTS
    assert len(copies["whole"]) == steps and min(copies["whole"]) > BOUND
    assert copies["default"] == copies["whole"], "the tiny models fit into one piece"
    assert len(copies["pieces"]) >= 2 * steps and max(copies["pieces"]) <= BOUND
    if kind == "qwen3":
        alone = sum(copies["whole"]) - sum(copies["pieces"])
        assert alone <= 256 * steps, "at most one norm per step has a piece of its own"
    else:
        assert sum(copies["pieces"]) < sum(copies["whole"]) / 4, "routers are reduced in place"


@pytest.mark.usefixtures("single_rank")
def test_megatrons_function_comes_back_after_a_failure():
    from slime.trainer.coalescing import bounded_coalescing, sum_replicated_gradients

    module = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    original = module._allreduce_non_tensor_model_parallel_grads
    with pytest.raises(RuntimeError, match="lost a rank"), bounded_coalescing():
        assert module._allreduce_non_tensor_model_parallel_grads is sum_replicated_gradients
        raise RuntimeError("lost a rank")
    assert module._allreduce_non_tensor_model_parallel_grads is original
