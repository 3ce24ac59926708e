"""The rules that keep a sample's per-token fields in step with its tokens.

Lengths, with n response tokens of T in all: loss_mask n, rollout_log_probs n, teacher_log_probs n,
rollout_top_p_token_offsets n + 1 (flat ids of token i are ids[offsets[i]:offsets[i + 1]]),
rollout_routed_experts (T - 1, layers, top-k): the last token was never routed when it was sampled.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from slime.samples import packed
from slime.samples.meta_info import decode_int32_meta_array

if TYPE_CHECKING:
    from slime.samples.sample import Sample

NOT_RECORDED = -1
"""Expert id of a token that was never seen by the engine (an environment's tokens at the end)."""

_TOP_P_IDS = ("output_top_p_token_ids", "top_p_token_ids")
_TOP_P_OFFSETS = ("output_top_p_token_offsets", "top_p_token_offsets")
_ROUTED_EXPERTS = ("routed_experts",)


def check(sample: "Sample") -> None:
    """Raise ValueError naming the first per-token field whose length is wrong."""
    length, num_tokens = sample.response_length, len(packed.stored(sample, "tokens"))
    if not 0 <= length <= num_tokens:
        raise ValueError(f"response_length {length} of {num_tokens} tokens")
    expected = {
        "loss_mask": length,
        "rollout_log_probs": length,
        "teacher_log_probs": length,
        "rollout_top_p_token_offsets": length + 1,
        "rollout_routed_experts": num_tokens - 1,
    }
    for name, size in expected.items():
        value = packed.stored(sample, name)
        if value is not None and len(value) != size:
            raise ValueError(
                f"{name} has {len(value)} entries, {size} are needed (sample {sample.index})"
            )
    offsets, ids = sample.rollout_top_p_token_offsets, sample.rollout_top_p_token_ids
    if offsets is not None and (ids is None or int(offsets[-1]) != len(ids)):
        raise ValueError(f"rollout_top_p_token_offsets end at {offsets[-1]}, not at the last id")


def append(
    sample: "Sample",
    args: Any,
    tokens: list[int],
    log_probs: list[float] | None,
    trainable: bool,
    meta_info: dict[str, Any],
) -> None:
    """Append `tokens` with their mask, log-probs, top-p spans and experts; all or nothing."""
    old_tokens, count = packed.stored(sample, "tokens"), len(tokens)
    old_mask = _old_mask(sample)
    all_log_probs = _extended_log_probs(sample, old_mask, count, log_probs, trainable)
    top_p = _extended_top_p(sample, count, meta_info)
    experts = _extended_experts(sample, args, len(old_tokens) + count, meta_info)

    sample.tokens = packed.joined("tokens", old_tokens, tokens)
    sample.response_length += count
    sample.loss_mask = packed.joined("loss_mask", old_mask, np.full(count, trainable, np.uint8))
    sample.rollout_log_probs = all_log_probs
    if top_p is not None:
        sample.rollout_top_p_token_ids, sample.rollout_top_p_token_offsets = top_p
    sample.rollout_routed_experts = experts


def _old_mask(sample: "Sample") -> Any:
    mask = packed.stored(sample, "loss_mask")
    if mask is None:
        return np.ones(sample.response_length, dtype=np.uint8)
    if len(mask) != sample.response_length:
        raise ValueError(
            f"loss_mask has {len(mask)} entries for {sample.response_length} response tokens"
        )
    return mask


def _extended_log_probs(
    sample: "Sample", old_mask: Any, num_new: int, log_probs: list[float] | None, trainable: bool
) -> Any:
    """Old and new log-probs; tokens that are not trained get 0.0, which the mask keeps out of
    everything.
    """
    old = packed.stored(sample, "rollout_log_probs")
    if log_probs is None and (old is None or not trainable):
        log_probs = [0.0] * num_new
        return None if old is None else packed.joined("rollout_log_probs", old, log_probs)
    if log_probs is None:
        raise ValueError(
            f"{num_new} trainable tokens come without log-probs; the earlier ones have them"
        )
    if old is None:
        if any(old_mask):
            raise ValueError("these tokens come with log-probs; earlier trainable tokens have none")
        old = np.zeros(sample.response_length, dtype=np.float32)
    if len(old) != sample.response_length:
        raise ValueError(
            f"rollout_log_probs has {len(old)} entries for {sample.response_length} response tokens"
        )
    return packed.joined("rollout_log_probs", old, log_probs)


def _extended_top_p(
    sample: "Sample", num_new: int, meta_info: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Flat ids and offsets with the new spans; tokens without a report get empty spans."""
    new_ids = decode_int32_meta_array(meta_info, _TOP_P_IDS)
    new_offsets = decode_int32_meta_array(meta_info, _TOP_P_OFFSETS)
    if (new_ids is None) != (new_offsets is None):
        raise ValueError("meta_info has top-p token ids or their offsets, but not both")
    old_ids, old_offsets = sample.rollout_top_p_token_ids, sample.rollout_top_p_token_offsets
    if new_ids is None and old_ids is None:
        return None
    ids = np.asarray([] if old_ids is None else old_ids, dtype=np.int32)
    offsets = np.asarray(
        [0] * (sample.response_length + 1) if old_offsets is None else old_offsets, dtype=np.int32
    )
    if new_ids is None or new_offsets is None:
        return ids, np.concatenate([offsets, np.full(num_new, offsets[-1], dtype=np.int32)])
    if len(new_offsets) != num_new + 1 or int(new_offsets[-1]) != len(new_ids):
        raise ValueError(f"{len(new_offsets)} top-p offsets for {num_new} tokens")
    return np.concatenate([ids, new_ids]), np.concatenate([offsets, offsets[-1] + new_offsets[1:]])


def _extended_experts(
    sample: "Sample", args: Any, num_tokens: int, meta_info: dict[str, Any]
) -> list[list[int]] | np.ndarray | None:
    """Routed experts of all tokens but the last. A call reports the whole sequence, so the newest
    report wins.
    """
    flat = decode_int32_meta_array(meta_info, _ROUTED_EXPERTS)
    if flat is not None:
        shape = (num_tokens - 1, int(args.num_layers), int(args.moe_router_topk))
        if flat.size != np.prod(shape):
            raise ValueError(f"meta_info has {flat.size} routed experts, shape {shape} is needed")
        return flat.reshape(shape)
    if sample.rollout_routed_experts is None:
        return None
    old = np.asarray(sample.rollout_routed_experts, dtype=np.int32)
    missing = (num_tokens - 1 - len(old), *old.shape[1:])
    return np.concatenate([old, np.full(missing, NOT_RECORDED, dtype=np.int32)])
