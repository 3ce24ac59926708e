"""Training steps: what they must not depend on, what they must refuse."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.usefixtures("single_rank")


def _train(args, *rollouts):
    """Metrics of the last rollout, and the weights after it."""
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args)
    trainer.load()
    for rollout_id, rollout in enumerate(rollouts):
        metrics = trainer.train(rollout_id, rollout)
    weights = {n: t.clone() for bucket in trainer.hf_weight_buckets(1 << 30) for n, t in bucket}
    return metrics, weights


def _close(left, right, atol=2e-6):
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], rtol=0, atol=atol)


def _rebatched(rollout, batches):
    return {**rollout, "micro_batch_indices": batches, "num_microbatches": [len(batches)]}


def test_the_same_data_gives_the_same_bits(hf_model, args_for, rollout_of):
    args = args_for(hf_model())
    first, second = (_train(args, rollout_of(1), rollout_of(2)) for _ in range(2))
    assert all(torch.equal(value, second[1][name]) for name, value in first[1].items())
    assert {k: v for k, v in first[0].items() if "seconds" not in k} == {
        k: v for k, v in second[0].items() if "seconds" not in k
    }


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("estimator", ["grpo", "gspo", "cispo", "reinforce_plus_plus"])
def test_micro_batching_changes_nothing(estimator, per_token, hf_model, args_for, rollout_of):
    args = args_for(
        hf_model(),
        advantage_estimator=estimator,
        calculate_per_token_loss=per_token,
        use_tis=True,
        use_opsm=True,
        entropy_coef=0.02,
        adam_eps=1e-2,  # else Adam magnifies the rounding of tiny gradients
        lr=1e-2,
    )
    rollout = rollout_of(3, steps=1)
    whole = _train(args, _rebatched(rollout, [list(range(8))]))
    for batches in ([[i] for i in range(8)], [[7, 2], [0, 1, 3, 4, 5], [6]]):
        metrics, weights = _train(args, _rebatched(rollout, batches))
        _close(weights, whole[1])
        for key, value in whole[0].items():
            if "seconds" not in key:
                assert metrics[key] == pytest.approx(value, rel=1e-5, abs=1e-6), key


def test_masked_positions_never_leak(hf_model, args_for, rollout_of):
    args = args_for(hf_model(), use_tis=True, use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="k3")
    clean = rollout_of(4, steps=1)
    poisoned = copy.deepcopy(clean)
    for mask, log_probs in zip(poisoned["loss_masks"], poisoned["rollout_log_probs"], strict=True):
        log_probs[mask == 0] = np.nan
    left, right = _train(args, clean), _train(args, poisoned)
    assert all(torch.equal(value, right[1][name]) for name, value in left[1].items())
    assert all(math.isfinite(value) for value in right[0].values())
    assert left[0]["tis"] == right[0]["tis"]


def test_skipping_the_old_log_probs_changes_nothing(hf_model, args_for, rollout_of):
    """One step per rollout: the training pass gives the same log-probs as a pass before it."""
    rollout = rollout_of(5, steps=1)
    skipped = _train(args_for(hf_model(), use_tis=True), rollout)
    computed = _train(args_for(hf_model(), use_tis=True, use_rollout_entropy=True), rollout)
    assert computed[0]["seconds/log_probs"] > 0
    assert computed[0]["rollout_entropy"] == pytest.approx(computed[0]["entropy"], rel=1e-6)
    _close(skipped[1], computed[1], atol=1e-7)
    assert "seconds/log_probs" not in skipped[0]
    assert skipped[0]["train_rollout_logprob_abs_diff"] == pytest.approx(
        computed[0]["train_rollout_logprob_abs_diff"], abs=1e-6
    )


def test_a_fanned_out_rollout_counts_once(hf_model, args_for, rollout_of):
    """Two halves of the mask as two samples of one rollout weigh like the one sample they are."""
    args, whole = args_for(hf_model()), rollout_of(6, samples=2, steps=1, micro_batches=1)
    length = whole["response_lengths"][0]
    early = np.arange(length) < length // 2
    mask = whole["loss_masks"][0]
    fanned = {
        key: [value[0], *value] if isinstance(value, list) else value
        for key, value in whole.items()
    }
    fanned.update(
        loss_masks=[mask * early, mask * ~early, whole["loss_masks"][1]],
        rollout_ids=[0, 0, 1],
        sample_indices=[0, 1, 2],
        micro_batch_indices=[[0, 1, 2]],
        num_microbatches=[1],
        global_batch_sizes=[2],
        global_num_tokens=whole["global_num_tokens"],
    )
    left, right = _train(args, whole), _train(args, fanned)
    _close(left[1], right[1])
    assert left[0]["loss"] == pytest.approx(right[0]["loss"], abs=1e-6)


@pytest.mark.parametrize(("what", "message"), [("reward", "the loss is nan"), ("weight", "is nan")])
def test_a_nan_stops_training_before_it_reaches_the_weights(
    what, message, hf_model, args_for, rollout_of, tmp_path
):
    from slime.trainer.optimizer import NonFiniteError
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args_for(hf_model(), run_dir=tmp_path))
    trainer.load()
    before = [p.detach().clone() for p in trainer.model[0].parameters()]
    rollout = rollout_of(7)
    if what == "reward":
        rollout["rewards"][3] = float("nan")
        bad = before
    else:
        with torch.no_grad():
            next(trainer.model[0].parameters())[5] = float("nan")
        rollout["tokens"] = [np.full_like(t, 5) for t in rollout["tokens"]]
        bad = [p.detach().clone() for p in trainer.model[0].parameters()]
    with pytest.raises(NonFiniteError, match=f"{message}.*rollout 9, step 0, samples"):
        trainer.train(9, rollout)
    after = list(trainer.model[0].parameters())
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(after, bad, strict=True))


def test_an_infinite_gradient_is_refused_although_the_loss_is_finite(hf_model, args_for):
    from slime.trainer.optimizer import NonFiniteError, step
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args_for(hf_model()))
    trainer.load()
    params = list(trainer.model[0].parameters())
    before = [p.detach().clone() for p in params]
    trainer.model[0].zero_grad_buffer()
    params[2].main_grad.fill_(float("inf"))
    with pytest.raises(NonFiniteError, match="inf"):
        step(trainer.optimizer)
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": [0.0]}, "1 rewards for 8 samples"),
        ({"response_lengths": [99] * 8}, "need 0 <= response < total"),
        ({"tokens": None}, "token ids outside 0..100"),
    ],
)
def test_inconsistent_rollout_data_is_refused(change, message, hf_model, args_for, rollout_of):
    from slime.trainer.trainer import Trainer

    trainer, rollout = Trainer(args_for(hf_model())), rollout_of(0)
    if "tokens" in change:
        rollout["tokens"][2][0] = 101
    else:
        rollout.update(change)
    with pytest.raises(ValueError, match=message):
        trainer.train(0, rollout)


def test_frozen_parameters_stay_and_the_rest_moves(hf_model, args_for, rollout_of):
    args = args_for(hf_model(), freeze_params_name_list=[r"mlp\.linear", "embedding"])
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args)
    trainer.load()
    start = {n: p.detach().clone() for n, p in trainer.model[0].named_parameters()}
    trainer.train(0, rollout_of(0))
    moved = {n for n, p in trainer.model[0].named_parameters() if not torch.equal(p, start[n])}
    assert moved == {n for n in start if "mlp.linear" not in n and "embedding" not in n}


def test_learning_rate_follows_its_schedule(hf_model, args_for, rollout_of):
    from slime.trainer.trainer import Trainer

    args = args_for(
        hf_model(),
        lr=1e-3,
        min_lr=1e-4,
        lr_decay_style="linear",
        lr_warmup_iters=2,
        lr_decay_iters=6,
    )
    trainer = Trainer(args)
    trainer.load()
    lrs = [trainer.train(i, rollout_of(i, steps=1))["lr"] for i in range(7)]
    decay = [1e-3 - 9e-4 * i / 4 for i in range(5)]
    assert lrs == pytest.approx([0.0, 5e-4, *decay])


def test_loss_and_learning_rate_follow_a_batch_of_another_size(hf_model, args_for, rollout_of):
    """Steps of 4, 2 and 2 rollouts where 4 are usual move the schedule by 1, 1/2 and 1/2."""
    from slime.trainer.trainer import Trainer

    schedule = {"lr": 1e-3, "lr_decay_style": "linear", "lr_decay_iters": 4}
    args = args_for(hf_model(), rollout_batch_size=4, **schedule)
    assert args.global_batch_size == 4
    trainer = Trainer(args)
    trainer.load()
    whole = rollout_of(2, steps=1)
    whole.update(
        micro_batch_indices=[[0, 1, 2, 3], [4, 5], [6], [7]],
        num_microbatches=[1, 1, 2],
        global_batch_sizes=[4, 2, 2],
        global_num_tokens=[1.0, 1.0, 1.0],
    )
    seen = []
    step = trainer._step

    def record(*given):
        seen.append(step(*given))
        return seen[-1]

    trainer._step = record
    trainer.train(0, whole)
    assert [metrics["lr"] for metrics in seen] == pytest.approx([1e-3, 7.5e-4, 6.25e-4])
    assert trainer.scheduler.num_steps == 2
    means = [
        np.mean([whole["rewards"][i] for i in part]) for part in ([0, 1, 2, 3], [4, 5], [6, 7])
    ]
    assert [metrics["advantages"] for metrics in seen] == pytest.approx(means, abs=1e-6)


def test_sft_loss_is_the_mean_negative_log_likelihood(hf_model, args_for, rollout_of):
    import transformers

    args, rollout = (
        args_for(hf_model(), loss_type="sft_loss", rollout_temperature=1.0),
        rollout_of(8, steps=1),
    )
    metrics, _ = _train(args, rollout)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.hf_checkpoint, dtype=torch.float32
    )
    losses = []
    for ids, n, mask in zip(
        rollout["tokens"], rollout["response_lengths"], rollout["loss_masks"], strict=True
    ):
        ids, mask = torch.as_tensor(ids), torch.as_tensor(mask)
        log_p = torch.log_softmax(model(input_ids=ids[None]).logits[0, -n - 1 : -1], -1)
        losses.append((-log_p.gather(1, ids[-n:, None])[:, 0] * mask).sum() / mask.sum())
    assert metrics["loss"] == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)


def test_the_reference_is_renewed_when_asked(hf_model, args_for, rollout_of):
    from slime.trainer.trainer import Trainer

    kl = {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k3", "lr": 1e-2}
    trainer = Trainer(args_for(hf_model(), **kl, ref_update_interval=2))
    trainer.load()
    values = [trainer.train(i, rollout_of(i, steps=1))["kl"] for i in range(3)]
    assert values[0] == pytest.approx(0.0, abs=1e-9)
    assert values[1] > 1e-3
    assert values[2] == pytest.approx(0.0, abs=1e-9)


def test_bfloat16_training_stays_near_float32(hf_model, args_for, rollout_of):
    full = _train(args_for(hf_model()), rollout_of(1))
    half = _train(args_for(hf_model(), bf16=True), rollout_of(1))
    assert half[1]["model.norm.weight"].dtype == torch.bfloat16
    assert half[0]["loss"] == pytest.approx(full[0]["loss"], abs=0.02)
    assert half[0]["grad_norm"] == pytest.approx(full[0]["grad_norm"], rel=0.05)


def test_recomputing_activations_changes_nothing(hf_model, args_for, rollout_of):
    recompute = {"granularity": "full", "method": "uniform", "num_layers": 1}
    options = {f"recompute_{name}": value for name, value in recompute.items()}
    plain = _train(args_for(hf_model()), rollout_of(1))
    again = _train(args_for(hf_model(), **options), rollout_of(1))
    assert all(torch.equal(value, again[1][name]) for name, value in plain[1].items())


def test_a_kl_cost_in_the_reward_lowers_the_returns_by_it(hf_model, args_for, rollout_of):
    from slime.trainer.advantages import compute_advantages_and_returns
    from slime.trainer.rollout_tensors import prepare

    options = {"advantage_estimator": "reinforce_plus_plus", "kl_coef": 0.5, "gamma": 0.9}
    args = args_for(hf_model(), **options)
    data = prepare(args, rollout_of(2))
    data["log_probs"] = [torch.randn(n) for n in data["response_lengths"]]
    data["ref_log_probs"] = [torch.randn(n) for n in data["response_lengths"]]
    compute_advantages_and_returns(args, data)
    for i, mask in enumerate(data["loss_masks"]):
        carry = 0.0
        last = int(mask.nonzero()[-1])
        for t in reversed(range(len(mask))):
            if mask[t]:
                cost = 0.5 * float(data["log_probs"][i][t] - data["ref_log_probs"][i][t])
                carry = (data["rewards"][i] if t == last else 0.0) - cost + 0.9 * carry
            want = carry if mask[t] else 0.0
            assert float(data["advantages"][i][t]) == pytest.approx(want, abs=1e-5)


HOOKS = """
seen = []

def before_log_prob(args, model, store_prefix):
    seen.append(("log_prob", store_prefix))

def before_step(args, rollout_id, step_id, model, optimizer, opt_param_scheduler):
    seen.append(("step", rollout_id, step_id))

def advantages(args, rollout_data):
    rollout_data["advantages"] = [mask * 2.0 for mask in rollout_data["loss_masks"]]

def loss(args, batch, logits, sum_of_sample_mean):
    tokens = sum(batch.of("total_lengths"))
    assert logits.shape[:2] == (1, tokens)  # a custom loss sees every position
    total = logits.square().mean() * len(batch.samples)
    return total, {"square": total}
"""


def test_functions_given_by_path_are_called(hf_model, args_for, rollout_of, tmp_path, monkeypatch):
    import sys

    (tmp_path / "given_functions.py").write_text(HOOKS)
    monkeypatch.syspath_prepend(tmp_path)
    options = {
        "custom_megatron_before_log_prob_hook_path": "given_functions.before_log_prob",
        "custom_megatron_before_train_step_hook_path": "given_functions.before_step",
        "custom_advantage_function_path": "given_functions.advantages",
    }
    rollout = rollout_of(1, steps=2)
    metrics, _ = _train(args_for(hf_model(), **options), rollout)
    seen = sys.modules["given_functions"].seen
    assert seen == [("log_prob", ""), ("step", 0, 0), ("step", 0, 1)]
    assert metrics["pg_loss"] == pytest.approx(
        -2.0, abs=0.05
    )  # every advantage is 2, ratios near 1
    custom = {"loss_type": "custom_loss", "custom_loss_function_path": "given_functions.loss"}
    masked = rollout_of(1, steps=1)  # which such a loss may train on all the same
    masked["loss_masks"] = [np.zeros_like(mask) for mask in masked["loss_masks"]]
    masked["global_num_tokens"] = [0.0]
    metrics, _ = _train(args_for(hf_model(), **custom), masked)
    assert metrics["square"] == metrics["loss"] > 0


@pytest.mark.parametrize("per_token", [False, True])
def test_a_step_of_masked_tokens_only_changes_nothing(
    per_token, hf_model, args_for, rollout_of, capsys
):
    """Neither Adam's moments nor weight decay may move the weights."""
    from slime.trainer.trainer import Trainer

    args = args_for(hf_model(), calculate_per_token_loss=per_token, weight_decay=0.1, lr=1e-2)
    trainer = Trainer(args)
    trainer.load()
    trainer.train(0, rollout_of(3))
    before = [param.detach().clone() for param in trainer.model[0].parameters()]
    masked = rollout_of(4, steps=1)
    masked["loss_masks"] = [np.zeros_like(mask) for mask in masked["loss_masks"]]
    masked["global_num_tokens"] = [0.0]
    metrics = trainer.train(1, masked)
    assert (metrics["steps"], metrics["skipped_steps"]) == (0, 1)
    assert "step skipped: every token is masked (rollout 1, step 0)" in capsys.readouterr().out
    after = trainer.model[0].parameters()
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"calculate_per_token_loss": True, "entropy_coef": 0.01},
        {"advantage_estimator": "gspo", "use_kl_loss": True, "kl_loss_coef": 0.1},
        {"advantage_estimator": "reinforce_plus_plus", "normalize_advantages": True},
        {"use_tis": True, "get_mismatch_metrics": True},
        {"loss_type": "sft_loss"},
    ],
)
def test_a_response_of_no_tokens_trains_nothing(options, hf_model, args_for, rollout_of):
    """Such as that of an agent that failed at once; as if all its tokens were masked."""
    empty, masked = rollout_of(3), rollout_of(3)
    for rollout in (empty, masked):
        rollout["loss_masks"][2] = np.zeros_like(rollout["loss_masks"][2])
        rollout["global_num_tokens"] = [
            float(sum(mask.sum() for mask in rollout["loss_masks"][first : first + 4]))
            for first in (0, 4)
        ]
    empty["response_lengths"][2] = 0
    for name in ("loss_masks", "rollout_log_probs"):
        empty[name][2] = empty[name][2][:0]
    left, right = (_train(args_for(hf_model(), **options), data) for data in (empty, masked))
    _close(left[1], right[1])
    for name in ("loss", "grad_norm"):
        assert left[0][name] == pytest.approx(right[0][name], rel=1e-5), name
