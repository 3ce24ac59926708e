"""Every policy loss, value and gradient, against the token-by-token float64 reference."""

from __future__ import annotations

from typing import Any

import loss_reference
import numpy as np
import pytest
import torch
from hf_models import VOCAB

pytestmark = pytest.mark.usefixtures("single_rank")
KL = {"use_kl_loss": True, "kl_loss_coef": 0.2}
TIS = {"use_tis": True, "tis_clip": 1.3, "tis_clip_low": 0.7}
CASES: dict[str, dict[str, Any]] = {
    "grpo": {},
    "clip-higher": {"eps_clip": 0.1, "eps_clip_high": 0.3},
    "dual clip": {"eps_clip_c": 1.2},
    "per token": {"calculate_per_token_loss": True},
    "gspo": {"advantage_estimator": "gspo", "eps_clip": 0.02},
    "cispo": {"advantage_estimator": "cispo"},
    "entropy": {"entropy_coef": 0.05},
    "k1": {**KL, "kl_loss_type": "k1"},
    "k2": {**KL, "kl_loss_type": "k2"},
    "k3": {**KL, "kl_loss_type": "k3"},
    "unbiased": {**KL, "kl_loss_type": "k3", "use_unbiased_kl": True},
    "unbiased gspo": {
        **KL,
        "kl_loss_type": "k3",
        "use_unbiased_kl": True,
        "advantage_estimator": "gspo",
    },
    "opsm": {"use_opsm": True, "opsm_delta": 0.05},
    "rollout log-probs": {"use_rollout_logprobs": True},
    "tis": TIS,
    "recomputed": {"recompute_loss_function": True, **TIS},
    "top-p": {"rollout_top_p": 0.9},
}
for level, name in (("token", "token"), ("sequence", "sequence"), ("geometric", "geometric_mean")):
    for mode in ("truncate", "mask", "reject"):
        path = f"slime.trainer.importance.{mode}_by_{name}"
        CASES[f"{mode} {level}"] = {**TIS, "custom_tis_function_path": path}


def make_data(seed: int, top_p: bool) -> dict[str, Any]:
    """A prepared rollout of one step with old, reference and advantage values of its own.

    Samples 0 and 1 are of one rollout.
    """
    random = np.random.default_rng(seed)
    responses = [int(n) for n in random.integers(2, 7, 6)]
    masks = [(random.random(n) > 0.25).astype(np.float32) for n in responses]
    for mask in masks:
        mask[0] = 1.0

    def near(center: list[np.ndarray], spread: float) -> list[np.ndarray]:
        return [(c + random.normal(0, spread, len(c))).astype(np.float32) for c in center]

    old = [random.normal(-4.6, 0.3, n) for n in responses]
    tokens = [random.integers(0, VOCAB, 3 + n) for n in responses]
    data = {
        "tokens": tokens,
        "total_lengths": [3 + n for n in responses],
        "response_lengths": responses,
        "loss_masks": masks,
        "rewards": [0.0] * 6,
        "rollout_ids": [0, 0, 1, 2, 3, 4],
        "micro_batch_indices": [[0, 1, 2, 3, 4, 5]],
        "num_microbatches": [1],
        "global_batch_sizes": [5],
        "global_num_tokens": [float(sum(mask.sum() for mask in masks))],
        "log_probs": near(old, 0.0),
        "rollout_log_probs": near(old, 0.3),
        "ref_log_probs": near(old, 0.3),
        "advantages": [random.normal(0, 1, n).astype(np.float32) for n in responses],
    }
    if top_p:
        data["kept"] = [
            [sorted({int(t), *map(int, random.integers(0, VOCAB, 40))}) for t in ids[3:]]
            for ids in tokens
        ]
        data["rollout_top_p_token_ids"] = [np.concatenate(rows) for rows in data["kept"]]
        data["rollout_top_p_token_offsets"] = [
            np.cumsum([0, *map(len, rows)]) for rows in data["kept"]
        ]
    return data


def run(args, data: dict[str, Any], logits: torch.Tensor):
    """The loss of one micro-batch of all samples, and what it reports."""
    from slime.trainer.loss import loss_function
    from slime.trainer.micro_batch import pack
    from slime.trainer.rollout_tensors import prepare

    batch = prepare(args, data)
    for key in ("log_probs", "ref_log_probs", "advantages"):
        batch[key] = [torch.tensor(value) for value in data[key]]
    loss, _, report = loss_function(args, pack(args, batch, list(range(6)), 0), logits[None])
    names = zip(report["keys"], report["values"][1:].tolist(), strict=True)
    return loss, dict(names)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient(case, seed, hf_model, args_for):
    args = args_for(hf_model(), **CASES[case])
    data = make_data(seed, "top-p" in case)
    generator = torch.Generator().manual_seed(seed)
    rows = sum(data["response_lengths"])
    logits = (0.4 * torch.randn(rows, VOCAB, generator=generator)).requires_grad_()
    loss, _ = run(args, data, logits)
    loss.backward()
    if args.custom_tis_function_path:
        args.correction = tuple(case.split())
    other = logits.detach().clone().requires_grad_()
    want = loss_reference.policy_loss(args, data, other)
    want.backward()
    assert loss.item() == pytest.approx(want.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(logits.grad, other.grad, rtol=1e-4, atol=1e-7)
    assert logits.grad.abs().sum() > 0


def test_the_raw_kl_is_logged_beside_the_unbiased_one(hf_model, args_for):
    data, logits = make_data(0, False), torch.randn(40, VOCAB)
    logits = logits[: sum(data["response_lengths"])]
    kinds = {**KL, "kl_loss_type": "k3"}
    plain = run(args_for(hf_model(), **kinds), data, logits)[1]
    unbiased = run(args_for(hf_model(), **kinds, use_unbiased_kl=True), data, logits)[1]
    assert plain["raw_kl"] == plain["kl"] == pytest.approx(unbiased["raw_kl"])
    assert unbiased["kl"] != pytest.approx(plain["kl"], rel=1e-2)


REDUCERS = """
import torch
from slime.trainer.pg_reducers import constant_length_reducer

dr_grpo = constant_length_reducer(50)

def correct(args, *, pg_loss, train_log_probs, rollout_log_probs, loss_masks, **kwargs):
    left = [mask * (torch.arange(len(mask)) == 0) for mask in loss_masks]
    return pg_loss * 2, left, {"first": torch.cat(left)}
"""


def test_reducers_and_a_correction_given_by_path(hf_model, args_for, tmp_path, monkeypatch):
    """A constant in place of a response's length; tokens that a correction masks have no part."""
    (tmp_path / "given_reducers.py").write_text(REDUCERS)
    monkeypatch.syspath_prepend(tmp_path)
    data = make_data(1, False)
    logits = 0.4 * torch.randn(sum(data["response_lengths"]), VOCAB)
    plain, paths = args_for(hf_model()), "given_reducers."
    log_p = torch.log_softmax(logits.double() / plain.rollout_temperature, -1)
    row, all_tokens, first_tokens, means = 0, 0.0, 0.0, 0.0
    for i, n in enumerate(data["response_lengths"]):
        terms = loss_reference.token_terms(plain, data, i, log_p[row : row + n])
        losses = [float(term[0]) for term in terms if term]
        all_tokens += sum(losses)
        means += sum(losses) / len(losses)
        first_tokens += float(terms[0][0])
        row += n
    args = args_for(hf_model(), custom_pg_loss_reducer_function_path=paths + "dr_grpo")
    assert run(args, data, logits)[0].item() == pytest.approx(all_tokens / 50 / 5, rel=1e-4)
    per_sample = "slime.trainer.pg_reducers.sample_mean"
    args = args_for(hf_model(), custom_pg_loss_reducer_function_path=per_sample)
    assert run(args, data, logits)[0].item() == pytest.approx(means / 5, rel=1e-4, abs=1e-6)
    args = args_for(
        hf_model(),
        custom_pg_loss_reducer_function_path=paths + "dr_grpo",
        use_tis=True,
        custom_tis_function_path=paths + "correct",
    )
    loss, metrics = run(args, data, logits)
    assert loss.item() == pytest.approx(2 * first_tokens / 50 / 5, rel=1e-4)
    assert metrics["first"] > 0


def test_mismatch_metrics_are_averaged_over_samples(hf_model, args_for):
    args = args_for(hf_model(), get_mismatch_metrics=True)
    data = make_data(2, False)
    data["rollout_ids"] = list(range(6))
    data["global_batch_sizes"] = [6]
    _, metrics = run(args, data, torch.randn(sum(data["response_lengths"]), VOCAB))
    k3, ratios = [], []
    for i, mask in enumerate(data["loss_masks"]):
        new, old = (
            data[k][i][mask != 0].astype(np.float64) for k in ("log_probs", "rollout_log_probs")
        )
        k3.append((np.exp(new - old) - 1 - (new - old)).mean())
        ratios.append(np.exp(new.mean() - old.mean()))
    assert metrics["mismatch_k3"] / 6 == pytest.approx(np.mean(k3), rel=1e-4)
    assert metrics["ppl_ratio"] / 6 == pytest.approx(np.mean(ratios), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"rollout_top_p": 0.9}, {}, "--rollout-top-p 0.9 needs rollout_top_p_token_ids"),
        ({"use_tis": True}, {"rollout_log_probs": None}, "--use-tis needs rollout_log_probs"),
        ({"use_opd": True, "opd_type": "sglang"}, {}, "--opd-type sglang needs teacher_log_probs"),
    ],
)
def test_a_missing_field_is_named(options, change, message, hf_model, args_for):
    from slime.trainer.rollout_tensors import prepare

    data = {k: v for k, v in (make_data(0, False) | change).items() if v is not None}
    with pytest.raises(ValueError, match=message):
        prepare(args_for(hf_model(), **options), data)


def test_a_token_that_top_p_did_not_keep_is_refused(hf_model, args_for):
    from slime.trainer.rollout_tensors import prepare

    data = make_data(0, True)
    data["tokens"][2][3] = next(set(range(VOCAB)).difference(data["kept"][2][0]).__iter__())
    with pytest.raises(ValueError, match="sample 2: response token 0 is not among"):
        prepare(args_for(hf_model(), rollout_top_p=0.9), data)
