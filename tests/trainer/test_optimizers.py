"""Stateless Adam, resets, optimizer state in host memory: against torch's own AdamW."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

OFFLOAD = {
    "bf16": True,
    "use_distributed_optimizer": True,
    "use_precision_aware_optimizer": True,
    "optimizer_cpu_offload": True,
}
PLAIN = {"bf16": True, "use_distributed_optimizer": True}


def _trainer(args):
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args)
    return trainer, trainer.load()


def _weights(trainer) -> dict[str, torch.Tensor]:
    return {n: t.clone() for bucket in trainer.hf_weight_buckets(1 << 30) for n, t in bucket}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    lr=st.floats(1e-5, 0.5),
    decay=st.sampled_from([0.0, 0.1]),
    eps=st.sampled_from([1e-8, 1e-3]),
    maximize=st.booleans(),
    decoupled=st.booleans(),
    amsgrad=st.booleans(),
)
def test_it_equals_an_adam_rebuilt_each_step(seed, lr, decay, eps, maximize, decoupled, amsgrad):
    from slime.trainer.stateless_adam import StatelessAdam

    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    options = {"lr": lr, "betas": (0.8, 0.95), "eps": eps, "weight_decay": decay}
    options |= {"maximize": maximize, "amsgrad": amsgrad}
    optimizer = StatelessAdam([ours], **options, adam_w_mode=decoupled)
    for _ in range(4):
        gradient = torch.randn(7, 3, generator=generator, dtype=torch.float64)
        gradient[0] = 0.0
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        optimizer.step()
        (torch.optim.AdamW if decoupled else torch.optim.Adam)([theirs], **options).step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert not optimizer.state, "it keeps nothing"


def test_without_bias_correction_the_moments_of_one_step_decide():
    from slime.trainer.stateless_adam import StatelessAdam

    param = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    param.grad = torch.tensor([0.5, 4.0], dtype=torch.float64)
    StatelessAdam([param], lr=0.1, betas=(0.9, 0.99), eps=1e-3, bias_correction=False).step()
    # m = 0.1 g, sqrt(v) = 0.1 |g|
    want = [1.0 - 0.1 * 0.05 / (0.05 + 1e-3), -2.0 - 0.1 * 0.4 / (0.4 + 1e-3)]
    torch.testing.assert_close(param.detach(), torch.tensor(want, dtype=torch.float64))


def test_low_precision_weights_move_by_their_float32_copy():
    from slime.trainer.stateless_adam import StatelessAdam

    param = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = StatelessAdam([param], lr=1e-3, master_weights=True, use_decoupled_grad=True)
    for _ in range(8):  # 1 - 1e-3 is 1 in bf16: without the copy nothing would ever move
        param.decoupled_grad = torch.ones(4)
        optimizer.step()
    torch.testing.assert_close(optimizer.state[param]["master_param"], torch.full((4,), 0.992))
    assert torch.equal(param, torch.full((4,), 0.992, dtype=torch.bfloat16))
    optimizer.zero_grad()
    assert param.decoupled_grad is None


def test_it_takes_the_state_of_any_adam_and_leaves_the_moments():
    from slime.trainer.stateless_adam import StatelessAdam

    params = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    for param in params:
        param.grad = torch.ones(3)
    adam = torch.optim.AdamW(params, lr=0.5)
    adam.step()
    optimizer = StatelessAdam(params, lr=0.1)
    optimizer.load_state_dict(adam.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.5 and not optimizer.state


@pytest.mark.usefixtures("single_rank")
class TestInTheTrainer:
    @pytest.mark.parametrize(
        "kind", [{}, PLAIN, {"bf16": True}, {"use_distributed_optimizer": True}]
    )
    def test_stateless_adam_equals_resets_before_each_step(
        self, kind, hf_model, args_for, rollout_of, tmp_path
    ):
        # near 0 the update g / (|g| + eps) must not be steep: roundings would decide the sign
        one_step = {"lr": 1e-2, "adam_eps": 0.1, **kind}
        rtol, atol = (1e-2, 1e-3) if "bf16" in kind else (1e-5, 2e-6)
        ours, _ = _trainer(args_for(hf_model(), **one_step, use_stateless_adam=True))
        reset, _ = _trainer(args_for(hf_model(), **one_step, reset_optimizer_states=True))
        for i in range(3):
            for trainer in (ours, reset):
                trainer.train(i, rollout_of(i, steps=1))
        want = _weights(reset)
        for name, value in _weights(ours).items():
            torch.testing.assert_close(value, want[name], rtol=rtol, atol=atol)
        for part in ours.optimizer.chained_optimizers:
            assert not part.optimizer.state

    @pytest.mark.parametrize("kind", [{}, PLAIN, {"bf16": True}])
    def test_stateless_adam_resumes_exactly(self, kind, hf_model, args_for, rollout_of, tmp_path):
        from slime.trainer.hf_to_megatron.common import CheckpointError

        options = {"lr": 1e-2, "use_stateless_adam": True, "save": str(tmp_path), **kind}
        unbroken, _ = _trainer(args_for(hf_model(), **options))
        for i in range(3):
            unbroken.train(i, rollout_of(i))
            if i == 1:
                unbroken.save(i)
        args = args_for(hf_model(), **options, load=str(tmp_path))
        resumed, begin = _trainer(args)
        assert begin == 2
        assert not any(part.optimizer.state for part in resumed.optimizer.chained_optimizers)
        resumed.train(2, rollout_of(2))
        want = _weights(unbroken)
        assert all(torch.equal(value, want[name]) for name, value in _weights(resumed).items())
        args.use_stateless_adam = False
        with pytest.raises(CheckpointError, match="use_stateless_adam"):
            _trainer(args)

    def test_resets_forget_the_rollout_before(self, hf_model, args_for, rollout_of, tmp_path):
        options = {"lr": 1e-2, "save": str(tmp_path)}
        resetting, _ = _trainer(args_for(hf_model(), **options, reset_optimizer_states=True))
        keeping, _ = _trainer(args_for(hf_model(), **options))
        for trainer in (resetting, keeping):
            trainer.train(0, rollout_of(0))
        resetting.save(0)
        fresh = args_for(hf_model(), **options, load=str(tmp_path), no_load_optim=True)
        rebuilt, _ = _trainer(fresh)
        for trainer in (resetting, keeping, rebuilt):
            trainer.train(1, rollout_of(1))
        want = _weights(rebuilt)
        same = [torch.equal(v, want[name]) for name, v in _weights(resetting).items()]
        other = [torch.equal(v, want[name]) for name, v in _weights(keeping).items()]
        assert all(same) and not any(other)

    @pytest.mark.parametrize("fraction", [0.5, 1.0])
    def test_an_offloaded_optimizer_trains_as_the_plain_one(
        self, fraction, hf_model, args_for, rollout_of
    ):
        options = {**OFFLOAD, "optimizer_offload_fraction": fraction}
        plain, _ = _trainer(args_for(hf_model(), **PLAIN, lr=1e-2))
        offloaded, _ = _trainer(args_for(hf_model(), **options, lr=1e-2))
        inner = offloaded.optimizer.chained_optimizers[0].optimizer
        assert bool(inner.gpu_param_groups) == (fraction < 1.0) and inner.cpu_param_groups
        for i in range(3):
            metrics = [trainer.train(i, rollout_of(i)) for trainer in (plain, offloaded)]
            assert metrics[1]["grad_norm"] == pytest.approx(metrics[0]["grad_norm"], rel=1e-3)
        want = _weights(plain)
        for name, value in _weights(offloaded).items():
            torch.testing.assert_close(value, want[name], rtol=1e-2, atol=1e-3)

    @pytest.mark.parametrize(("saved", "loaded"), itertools.product(["device", "host"], repeat=2))
    def test_state_moves_between_device_and_host(
        self, saved, loaded, hf_model, args_for, rollout_of, tmp_path
    ):
        kinds = {"device": PLAIN, "host": OFFLOAD}
        options = {"lr": 1e-2, "save": str(tmp_path)}
        first, _ = _trainer(args_for(hf_model(), **options, **kinds[saved]))
        first.train(0, rollout_of(0))
        first.save(0)
        resumed, begin = _trainer(
            args_for(hf_model(), **options, **kinds[loaded], load=str(tmp_path))
        )
        assert begin == 1
        at_load = _weights(first)
        assert all(torch.equal(v, at_load[name]) for name, v in _weights(resumed).items())
        for i in (1, 2):
            metrics = [trainer.train(i, rollout_of(i)) for trainer in (first, resumed)]
        exact = saved == loaded
        assert metrics[1]["grad_norm"] == pytest.approx(
            metrics[0]["grad_norm"], rel=0 if exact else 1e-3
        )
        want = _weights(first)
        for name, value in _weights(resumed).items():
            tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-2, "atol": 1e-3}
            torch.testing.assert_close(value, want[name], **tolerance)
