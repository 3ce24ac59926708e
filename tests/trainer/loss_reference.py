"""The policy losses written out token by token in float64; no code of slime takes part."""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Any

import torch


def _kl(d: torch.Tensor, kind: str) -> torch.Tensor:
    """Schulman's estimators of KL(p || q) from d = log p - log q."""
    return {"k1": d, "k2": d * d / 2, "k3": torch.exp(-d) - 1 + d}[kind]


def _sample_ratio(new: list, old: list, mask: Any, level: str, t: int) -> torch.Tensor:
    if level == "token":
        return torch.exp(new[t] - old[t])
    gaps = [new[s] - old[s] for s in range(len(mask)) if mask[s]]
    return torch.exp(sum(gaps) / (len(gaps) if level == "geometric" else 1))


def token_terms(args: Namespace, data: dict[str, Any], i: int, log_p: torch.Tensor) -> list:
    """[(policy loss, entropy, reference KL)] of every unmasked token of sample i.

    ``log_p`` [response, vocabulary] has the policy's log-probs before each token.
    """
    mask, n = data["loss_masks"][i], data["response_lengths"][i]
    tokens = data["tokens"][i][-n:]
    kept = data.get("kept", [None] * len(data["tokens"]))[i]
    new = []
    for t in range(n):
        value = log_p[t, tokens[t]]
        if kept is not None:
            value = value - torch.logsumexp(log_p[t, kept[t]], 0)
        new.append(value)
    old = [torch.tensor(float(v), dtype=torch.float64) for v in data["log_probs"][i]]
    rollout = [torch.tensor(float(v), dtype=torch.float64) for v in data["rollout_log_probs"][i]]
    anchor = rollout if args.use_rollout_logprobs else old
    high = args.eps_clip_high or args.eps_clip
    terms = []
    for t in range(n):
        if not mask[t]:
            terms.append(None)
            continue
        a = float(data["advantages"][i][t])
        level = "geometric" if args.advantage_estimator == "gspo" else "token"
        ratio = _sample_ratio(new, anchor, mask, level, t)
        held = ratio.clamp(1 - args.eps_clip, 1 + high)
        if args.advantage_estimator == "cispo":
            loss = -held.detach() * a * new[t]
        else:
            loss = torch.maximum(-ratio * a, -held * a)
            if args.eps_clip_c is not None and a < 0:
                loss = torch.minimum(loss, torch.tensor(-args.eps_clip_c * a, dtype=torch.float64))
        if args.use_opsm and a < 0:
            gaps = [float(anchor[s] - new[s]) for s in range(n) if mask[s]]
            loss = loss * float(sum(gaps) / len(gaps) <= args.opsm_delta)
        if args.use_tis:
            mode, level = getattr(args, "correction", ("truncate", "token"))
            w = float(_sample_ratio(old, rollout, mask, level, t))
            inside = args.tis_clip_low <= w <= args.tis_clip
            loss = (
                loss
                * {
                    "truncate": min(max(w, args.tis_clip_low), args.tis_clip),
                    "mask": w * inside,
                    "reject": float(inside),
                }[mode]
            )
        entropy = -(log_p[t].exp() * log_p[t]).sum()
        kl = _kl(new[t] - float(data["ref_log_probs"][i][t]), args.kl_loss_type)
        if args.use_unbiased_kl:
            kl = kl * torch.exp(new[t] - anchor[t])
        terms.append((loss, entropy, kl))
    return terms


def policy_loss(args: Namespace, data: dict[str, Any], logits: torch.Tensor) -> torch.Tensor:
    """The loss of one step from logits [all response tokens, vocabulary]; differentiable."""
    log_p = torch.log_softmax(logits.double() / args.rollout_temperature, -1)
    count, row = len(data["tokens"]), 0
    weights: dict[Any, float] = {}
    for rollout, mask in zip(data["rollout_ids"], data["loss_masks"], strict=True):
        weights[rollout] = weights.get(rollout, 0.0) + float(sum(mask))
    tokens = sum(weights.values())
    total = torch.zeros((), dtype=torch.float64)
    for i in range(count):
        n = data["response_lengths"][i]
        for term in token_terms(args, data, i, log_p[row : row + n]):
            if term is None:
                continue
            loss = term[0] - args.entropy_coef * term[1]
            if args.use_kl_loss:
                loss = loss + args.kl_loss_coef * term[2]
            if args.calculate_per_token_loss:
                total = total + loss / tokens
            else:
                total = total + loss / weights[data["rollout_ids"][i]] / len(weights)
        row += n
    assert math.isfinite(float(total))
    return total
