"""Context-parallel helpers of slime.algorithms.cp, bound to Megatron's parallel state."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from slime.algorithms import cp
from slime.algorithms.cp import PerToken, Span
from slime.algorithms.reducers import sample_sum_reducer


def cp_group() -> dist.ProcessGroup:
    """The context-parallel group of this rank."""
    return parallel_state.get_context_parallel_group()


def get_logits_and_tokens_offset_with_cp(
    total_length: int, response_length: int
) -> tuple[int, tuple[Span, Span], tuple[Span, Span], tuple[Span, Span]]:
    """See :func:`slime.algorithms.cp.logits_and_tokens_offset`."""
    group = cp_group()
    return cp.logits_and_tokens_offset(total_length, response_length, group.size(), group.rank())


def slice_with_cp(tokens: torch.Tensor, pad_value: float) -> torch.Tensor:
    """This rank's part of a sequence [total, ...], padded with ``pad_value``."""
    group = cp_group()
    return cp.slice_zigzag(tokens, pad_value, group.size(), group.rank())


def slice_log_prob_with_cp(log_prob: PerToken, total_length: int, response_length: int) -> PerToken:
    """This rank's part of a per-response-token list or tensor."""
    group = cp_group()
    return cp.slice_response(log_prob, total_length, response_length, group.size(), group.rank())


def all_gather_with_cp(
    tensor: torch.Tensor, total_length: int, response_length: int
) -> torch.Tensor:
    """The whole response from the parts of all ranks; differentiable."""
    return cp.gather_response(tensor, total_length, response_length, cp_group())


def slice_responses(
    whole: Iterable[torch.Tensor], total_lengths: list[int], response_lengths: list[int]
) -> list[torch.Tensor]:
    """This rank's parts of whole responses, one tensor per sample."""
    whole = list(whole)
    if cp_group().size() == 1 and [part.size(0) for part in whole] == list(response_lengths):
        return whole  # as it would be, without a call for each of thousands of samples
    rows = zip(whole, total_lengths, response_lengths, strict=True)
    return [slice_log_prob_with_cp(part, total, response) for part, total, response in rows]


def gather_responses(
    held: Iterable[torch.Tensor], total_lengths: list[int], response_lengths: list[int]
) -> list[torch.Tensor]:
    """The whole responses from the parts of all ranks, one tensor per sample; differentiable."""
    rows = zip(held, total_lengths, response_lengths, strict=True)
    return [all_gather_with_cp(part, total, response) for part, total, response in rows]


def get_sum_of_sample_mean(
    total_lengths: list[int],
    response_lengths: list[int],
    loss_masks: list[torch.Tensor],
    sample_denoms: list[torch.Tensor] | torch.Tensor | None = None,
    calculate_per_token_loss: bool = False,
) -> Callable[[torch.Tensor], torch.Tensor]:
    """A reducer of flat per-token values that this rank holds; the masks are of whole responses.

    See :func:`slime.algorithms.reducers.sample_sum_reducer`.
    """
    return sample_sum_reducer(
        slice_responses(loss_masks, total_lengths, response_lengths),
        sample_denoms,
        calculate_per_token_loss,
        full_loss_masks=loss_masks,
    )
