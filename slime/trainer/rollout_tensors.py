"""One rank's rollout data, as tensors on the training device, with what the reducers need."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state

from slime.data.ragged import Ragged
from slime.trainer.cp_utils import slice_responses

_NUMPY = {torch.long: np.int64, torch.float32: np.float32}
RolloutBatch = dict[str, Any]
NOT_RECORDED = -1  # expert of a token whose route nobody knows: the router decides

# Per-response-token values; under context parallelism a rank keeps its part.
_PER_TOKEN = ("rollout_log_probs", "teacher_log_probs")
# Which tokens top-p sampling kept: flat ids of all response tokens, and where each token's begin.
_TOP_P = ("rollout_top_p_token_ids", "rollout_top_p_token_offsets")


def tensorize_rollout_data_for_training(rollout_data: RolloutBatch) -> None:
    """Turn token ids, masks and per-token values into tensors, in place."""
    device = (
        torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
    )
    rollout_data["tokens"] = to_tensors(rollout_data["tokens"], torch.long, device)
    rollout_data["loss_masks"] = to_tensors(rollout_data["loss_masks"], torch.float32, device)
    for key in _TOP_P:
        if rollout_data.get(key) is not None:
            rollout_data[key] = to_tensors(rollout_data[key], torch.long, device)
    for key in _PER_TOKEN:
        if rollout_data.get(key) is None:
            rollout_data.pop(key, None)
            continue
        values = to_tensors(rollout_data[key], torch.float32, device)
        rollout_data[key] = slice_responses(
            values, rollout_data["total_lengths"], rollout_data["response_lengths"]
        )


def to_tensors(values: Any, dtype: torch.dtype, device: torch.device | str) -> list[torch.Tensor]:
    """One tensor per sample. They are copies: what lies in Ray's store must not be written to."""
    if len(values) == 0:
        return []
    if isinstance(values, Ragged):  # is one array already
        flat, lengths = values.flat.astype(_NUMPY[dtype]), values.lengths.tolist()
    else:
        arrays = [np.asarray(value) for value in values]
        flat = np.concatenate(arrays, dtype=_NUMPY[dtype], casting="unsafe")
        lengths = [len(array) for array in arrays]
    return list(torch.from_numpy(flat).to(device).split(lengths))


def validate_rollout_routed_experts_for_replay(
    routed_experts: list[torch.Tensor], args: Namespace
) -> None:
    """Refuse routes that cannot be replayed.

    Args:
        routed_experts: of each sample, [tokens - 1, layers, topk].

    Raises:
        ValueError: names the first sample whose shape or expert ids are wrong.
    """
    wanted = (args.num_layers, args.moe_router_topk)
    for index, routes in enumerate(routed_experts):
        experts = torch.as_tensor(routes)
        if experts.ndim != 3 or tuple(experts.shape[1:]) != wanted:
            raise ValueError(
                f"sample {index}: rollout_routed_experts has shape {tuple(experts.shape)}, "
                f"(tokens - 1, {wanted[0]} layers, {wanted[1]} experts) is needed"
            )
        low, high = int(experts.min()), int(experts.max())
        if low < NOT_RECORDED or high >= args.num_experts:
            raise ValueError(
                f"sample {index}: rollout_routed_experts has ids from {low} to {high}, the model "
                f"has {args.num_experts} experts"
            )


def prepare(args: Namespace, rollout_data: RolloutBatch) -> RolloutBatch:
    """A tensorised copy of what the rollout side sent, checked, with ``sample_denoms`` added.

    Raises:
        ValueError: lists of different lengths, a token id outside the vocabulary, a response as
            long as its sample, a field missing that the arguments need.
    """
    batch = dict(rollout_data)
    _check(args, batch)
    _check_fields(args, batch)
    tensorize_rollout_data_for_training(batch)
    batch["sample_denoms"] = _sample_denoms(batch)
    return batch


def _check(args: Namespace, batch: RolloutBatch) -> None:
    count = len(batch["tokens"])
    for key in ("total_lengths", "response_lengths", "loss_masks", "rewards"):
        if len(batch[key]) != count:
            raise ValueError(f"rollout data: {len(batch[key])} {key} for {count} samples")
    if args.use_rollout_routing_replay:
        if batch.get("rollout_routed_experts") is None:
            raise ValueError(
                "rollout data: no rollout_routed_experts, which --use-rollout-routing-replay "
                "needs; engines report them when asked with return_routed_experts"
            )
        routes = batch["rollout_routed_experts"]
        validate_rollout_routed_experts_for_replay(routes, args)
        for index, (experts, total) in enumerate(zip(routes, batch["total_lengths"], strict=True)):
            if len(experts) != total - 1:
                raise ValueError(
                    f"sample {index}: rollout_routed_experts of {len(experts)} tokens, "
                    f"{total - 1} of its {total} tokens are needed"
                )
    vocab_size = args.hf_architecture["vocab_size"]
    for index, (tokens, total, response, mask) in enumerate(
        zip(
            batch["tokens"],
            batch["total_lengths"],
            batch["response_lengths"],
            batch["loss_masks"],
            strict=True,
        )
    ):
        # A response may have no tokens (an agent that failed at once): it trains nothing.
        if len(tokens) != total or not 0 <= response < total or len(mask) != response:
            raise ValueError(
                f"rollout data, sample {index}: {len(tokens)} tokens, total_length {total}, "
                f"response_length {response}, {len(mask)} mask values; need 0 <= response < total"
            )
        if np.min(tokens) < 0 or np.max(tokens) >= vocab_size:
            raise ValueError(f"rollout data, sample {index}: token ids outside 0..{vocab_size - 1}")


def _check_fields(args: Namespace, batch: RolloutBatch) -> None:
    """What options need from the samples beside their tokens; a critic needs nothing."""
    needs = {
        "--use-tis": (args.use_tis, "rollout_log_probs"),
        "--use-rollout-logprobs": (args.use_rollout_logprobs, "rollout_log_probs"),
        "--get-mismatch-metrics": (args.get_mismatch_metrics, "rollout_log_probs"),
        "--opd-type sglang": (args.use_opd and args.opd_type == "sglang", "teacher_log_probs"),
        f"--rollout-top-p {args.rollout_top_p:g}": (args.rollout_top_p != 1.0, _TOP_P[0]),
    }
    for option, (asked, key) in needs.items():
        if args.loss_type == "policy_loss" and asked and batch.get(key) is None:
            raise ValueError(f"rollout data: {option} needs {key} on every sample; there are none")
    for index, (ids, offsets) in enumerate(
        zip(batch.get(_TOP_P[0]) or [], batch.get(_TOP_P[1]) or [], strict=True)
    ):
        _check_kept(index, np.asarray(ids), np.asarray(offsets), batch)


def _check_kept(index: int, ids: np.ndarray, offsets: np.ndarray, batch: RolloutBatch) -> None:
    """Every trained token must be among those that the sampler kept, or it had no probability."""
    response = batch["response_lengths"][index]
    if len(offsets) != response + 1 or offsets[-1] != len(ids):
        raise ValueError(
            f"rollout data, sample {index}: {len(offsets)} top-p offsets up to {offsets[-1:]} for "
            f"{response} response tokens and {len(ids)} ids"
        )
    counts = np.diff(offsets)
    prompt = batch["total_lengths"][index] - response
    tokens = np.repeat(np.asarray(batch["tokens"][index])[prompt:], counts)
    rows = np.repeat(np.arange(response), counts)
    found = np.zeros(response, dtype=bool)
    found[rows[tokens == ids]] = True
    lost = (counts > 0) & ~found & (np.asarray(batch["loss_masks"][index]) != 0)
    if lost.any():
        raise ValueError(
            f"rollout data, sample {index}: response token {int(lost.argmax())} is not among the "
            "ids that top-p kept"
        )


def batches_of_step(batch: RolloutBatch, step: int) -> list[list[int]]:
    """The micro-batches of one optimizer step, as the rollout side's schedule has them.

    Each is a list of indices into the rank's samples.
    """
    begin = sum(batch["num_microbatches"][:step])
    batches: list[list[int]] = batch["micro_batch_indices"]
    return batches[begin : begin + batch["num_microbatches"][step]]


def _sample_denoms(batch: RolloutBatch) -> list[float]:
    """Mask sum of the rollout each sample belongs to: a rollout that fanned out counts once.

    Its samples may lie on several data-parallel ranks, so the sums are exchanged by rollout id.
    """
    own = (
        torch.stack([mask.sum() for mask in batch["loss_masks"]]).tolist()
        if batch["loss_masks"]
        else []
    )
    rollout_ids = batch.get("rollout_ids")
    if rollout_ids is None:
        return own
    everyone: list[Any] = [None] * parallel_state.get_data_parallel_world_size()
    mine = list(zip(rollout_ids, own, strict=True))
    if len(everyone) > 1:
        dist.all_gather_object(everyone, mine, group=parallel_state.get_data_parallel_group())
    else:
        everyone = [mine]
    sums: dict[Any, float] = {}
    for rank_pairs in everyone:
        for rollout_id, tokens in rank_pairs:
            sums[rollout_id] = sums.get(rollout_id, 0.0) + tokens
    return [sums[rollout_id] for rollout_id in rollout_ids]
