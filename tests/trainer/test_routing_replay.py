"""Routing replay against Hugging Face with forced routes."""

from __future__ import annotations

import pytest
import torch
from forced_routes import add_routes, forced, own_routes

pytestmark = pytest.mark.usefixtures("single_rank")
FULL = {"entropy_coef": 0.01, "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k3"}
RECOMPUTE = {
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
}


def _trainer(args):
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args)
    trainer.load()
    return trainer


def _hf(folder):
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("options", [{}, RECOMPUTE], ids=["plain", "recompute"])
def test_training_on_the_engines_routes_equals_hugging_face_forced_to_them(
    options, hf_model, args_for, rollout_of, reference_of
):
    folder = hf_model("qwen3_moe", False)
    args = args_for(folder, **FULL, **options, use_rollout_routing_replay=True)
    rollouts = [add_routes(rollout_of(seed), seed) for seed in range(2)]
    reference = reference_of(args, rollouts)
    trainer = _trainer(args)
    for i, (rollout, want) in enumerate(zip(rollouts, reference.metrics, strict=True)):
        got = trainer.train(i, rollout)
        for key, value in want.items():
            assert got[key] == pytest.approx(value, rel=1e-5, abs=3e-6), key
    for name, value in (item for bucket in trainer.hf_weight_buckets(1 << 30) for item in bucket):
        torch.testing.assert_close(value, reference.weights[name], rtol=0, atol=1e-5, msg=name)
    free = reference_of(args, [rollout_of(seed) for seed in range(2)])
    assert abs(free.metrics[0]["grad_norm"] - reference.metrics[0]["grad_norm"]) > 1e-2


@pytest.mark.parametrize("options", [{}, RECOMPUTE], ids=["plain", "recompute"])
def test_recorded_routes_hold_after_the_router_has_changed(
    options, hf_model, args_for, rollout_of, tmp_path
):
    from slime.trainer.forward_backward import forward_backward, forward_outputs
    from slime.trainer.response_log_probs import log_probs_function

    folder = hf_model("qwen3_moe", False)
    args = args_for(folder, **options, use_routing_replay=True)
    trainer, rollout = _trainer(args), rollout_of(0)
    trainer.prepare(rollout)  # records
    data = trainer._prepared
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, param in trainer.model[0].named_parameters():
            if "router" in name:
                param.add_(torch.randn(param.shape, generator=noise))
    trainer.save_hf(tmp_path / "changed")
    before, changed = _hf(folder), _hf(tmp_path / "changed")
    with trainer.replay.training():
        replayed = forward_outputs(args, trainer.model, data, log_probs_function, trainer.replay)[
            "log_probs"
        ]
    own = forward_outputs(args, trainer.model, data, log_probs_function)["log_probs"]
    differ = 0.0
    for i, ids in enumerate(data["tokens"]):
        n = rollout["response_lengths"][i]
        with torch.no_grad(), forced(changed, own_routes(before, ids)):
            logits = changed(input_ids=ids[None]).logits[0, -n - 1 : -1]
        log_p = torch.log_softmax(logits / args.rollout_temperature, -1)
        want = log_p.gather(1, ids[-n:, None])[:, 0]
        torch.testing.assert_close(replayed[i], want, rtol=0, atol=1e-5)
        differ = max(differ, float((own[i] - want).abs().max()))
    assert differ > 1e-2, "the changed router would have chosen other experts"
    with trainer.replay.training():  # gradients reach the router, and what is recomputed fits
        forward_backward(args, trainer.model, data, 0, trainer.replay)
    routers = [p.main_grad for n, p in trainer.model[0].named_parameters() if "router" in n]
    assert all(float(grad.norm()) > 0 for grad in routers)


def test_dense_layers_and_a_critic_are_left_alone(hf_model, args_for, rollout_of):
    from slime.trainer.routing_replay import RoutingReplay

    args = args_for(hf_model("qwen3_moe_mixed", False), use_routing_replay=True)
    trainer = _trainer(args)
    trainer.train(0, rollout_of(0))
    assert sorted({layer for routes in trainer.replay._recorded.values() for layer in routes}) == [
        1
    ]
    assert not RoutingReplay(args, trainer.model, role="critic").enabled


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: None, "no rollout_routed_experts"),
        (lambda r: [x[:, :1] for x in r], r"sample 0: .* shape \(\d+, 1, 2\)"),
        (lambda r: [r[0], r[1] + 9, *r[2:]], "sample 1: .* the model has 4 experts"),
        (lambda r: [r[0], r[1][:-1], *r[2:]], "sample 1: .* tokens"),
    ],
)
def test_routes_that_cannot_be_replayed_are_named(spoil, message, hf_model, args_for, rollout_of):
    args = args_for(hf_model("qwen3_moe", False), use_rollout_routing_replay=True)
    rollout = add_routes(rollout_of(0), 0)
    rollout["rollout_routed_experts"] = spoil(rollout["rollout_routed_experts"])
    with pytest.raises(ValueError, match=message):
        _trainer(args).train(0, rollout)
