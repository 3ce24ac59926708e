"""Every algorithm on two ranks: the critic against Hugging Face, the rest against one rank."""

from __future__ import annotations

import functools
from argparse import Namespace
from pathlib import Path

import layouts
import pytest
import torch
from safetensors.torch import load_file
from value_reference import train_values

PPO = {"advantage_estimator": "ppo", "gamma": 0.9, "lambd": 0.8, "value_clip": 0.005, "lr": 1e-3}
CRITIC_LAYOUTS = ("tp2", "tp2-sp", "dp2-do", "pp2", "cp2")
KL_COST = {"kl_coef": 0.05, "kl_loss_type": "k1", "gamma": 0.9}
KL_LOSS = {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "low_var_kl"}
# Adam would magnify the rounding of tiny gradients.
EVERYWHERE = {"lr": 1e-2, "adam_eps": 1e-2}
ALGORITHMS = {
    "grpo": {"use_tis": True, "use_opsm": True, "get_mismatch_metrics": True, "entropy_coef": 0.01},
    "gspo": {"advantage_estimator": "gspo", **KL_LOSS, "use_unbiased_kl": True},
    "cispo": {"advantage_estimator": "cispo", "calculate_per_token_loss": True},
    "reinforce": {"advantage_estimator": "reinforce_plus_plus", **KL_COST},
    "whitened": {
        "advantage_estimator": "reinforce_plus_plus_baseline",
        "normalize_advantages": True,
    },
    "sequence-mis": {
        "use_tis": True,
        "tis_clip": 1.5,
        "tis_clip_low": 0.5,
        "custom_tis_function_path": "slime.trainer.importance.mask_by_geometric_mean",
        "use_rollout_entropy": True,
    },
    "distilled": {"use_opd": True, "opd_type": "megatron", "opd_kl_coef": 0.3},
    "supervised": {"loss_type": "sft_loss", "recompute_loss_function": True},
}
LAYOUTS = ("dp2", "cp2", "tp2-sp", "pp2")


@pytest.fixture(scope="module")
def options_of(hf_model):
    """The options of an algorithm."""

    def get(name: str) -> dict:
        teacher = (
            {"opd_teacher_load": hf_model("qwen3", True, seed=7)} if name == "distilled" else {}
        )
        return EVERYWHERE | ALGORITHMS[name] | {k: str(v) for k, v in teacher.items()}

    return get


@pytest.fixture(scope="module")
def results(hf_model, options_of, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One start of two ranks for all cases of this file."""
    options = {f"{layout}-critic": (layout, PPO) for layout in CRITIC_LAYOUTS}
    for name in ALGORITHMS:
        options |= {f"{layout}-{name}": (layout, options_of(name)) for layout in LAYOUTS}
    cases = [
        layouts.case(name, layout, hf_model(), loss=given)
        for name, (layout, given) in options.items()
    ]
    return layouts.run_cases(2, cases, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def trained_critic(args_for, hf_model, rollout_of):
    """Hugging Face's metrics and model; the head starts as every layout's does."""
    from slime.trainer.value_head import ValueHead

    args = args_for(hf_model(), **PPO)
    config = Namespace(
        hidden_size=64,
        init_method_std=args.init_method_std,
        sequence_parallel=False,
        use_cpu_initialization=True,
        params_dtype=torch.float32,
    )
    head = ValueHead(config, args.seed).weight.detach()
    return train_values(args, head, [rollout_of(seed) for seed in range(layouts.ROLLOUTS)])


@pytest.mark.parametrize("layout", CRITIC_LAYOUTS)
def test_a_critic_equals_hugging_face(layout, results, trained_critic):
    metrics, model = trained_critic
    first, second = (layouts.report(results, f"{layout}-critic", rank) for rank in range(2))
    assert first["values"] == second["values"]
    assert all(len(values) == 8 for values in first["values"])
    for got, other, want in zip(first["metrics"], second["metrics"], metrics, strict=True):
        for key, value in want.items():
            assert got[key] == pytest.approx(value, rel=1e-5, abs=3e-6), key
            assert got[key] == other[key], f"{key} differs between the ranks"
    heads = list((results / f"{layout}-critic").glob("head*.safetensors"))
    assert heads
    for path in heads:
        got = load_file(path)["head"]
        torch.testing.assert_close(got, model.head.detach(), rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def on_one_rank(single_rank, args_for, hf_model, rollout_of, options_of):
    """(metrics of each rollout, weights) of an algorithm trained by this process alone."""
    from slime.trainer.trainer import Trainer

    @functools.cache
    def train(name: str):
        trainer = Trainer(args_for(hf_model(), **options_of(name)))
        trainer.load()
        metrics = [trainer.train(i, rollout_of(i)) for i in range(layouts.ROLLOUTS)]
        weights = {n: t.clone() for b in trainer.hf_weight_buckets(1 << 30) for n, t in b}
        return metrics, weights

    return train


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_ranks_equal_one(name, layout, results, on_one_rank):
    metrics, weights = on_one_rank(name)
    got = layouts.report(results, f"{layout}-{name}", 0)["metrics"]
    for mine, want in zip(got, metrics, strict=True):
        assert {k for k in mine if "seconds" not in k} == {k for k in want if "seconds" not in k}
        for key in want:
            if "seconds" not in key:
                assert mine[key] == pytest.approx(want[key], rel=2e-4, abs=1e-5), key
    exported = load_file(results / f"{layout}-{name}" / "hf" / "model.safetensors")
    for key, value in exported.items():
        torch.testing.assert_close(value, weights[key], rtol=0, atol=2e-5)
