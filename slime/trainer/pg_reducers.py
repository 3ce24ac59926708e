"""Reducers of the policy-gradient loss for ``--custom-pg-loss-reducer-function-path``."""

from __future__ import annotations

from collections.abc import Callable

import torch

from slime.trainer.cp_utils import get_sum_of_sample_mean
from slime.trainer.loss_terms import Reducer

MakeReducer = Callable[[list[int], list[int], list[torch.Tensor], bool], Reducer]


def constant_length_reducer(length: float) -> MakeReducer:
    """Dr. GRPO (arXiv:2503.20783): the sum over a response's tokens divided by one ``length``.

    A response's own length as divisor makes long wrong answers cheap. Give your run's response
    limit: ``dr_grpo = constant_length_reducer(4096)`` in a module of yours.
    """

    def make(
        total_lengths: list[int],
        response_lengths: list[int],
        loss_masks: list[torch.Tensor],
        calculate_per_token_loss: bool = False,
    ) -> Reducer:
        total = get_sum_of_sample_mean(
            total_lengths, response_lengths, loss_masks, calculate_per_token_loss=True
        )
        return lambda values: total(values) / length

    return make


dr_grpo = constant_length_reducer(1000.0)


def sample_mean(
    total_lengths: list[int],
    response_lengths: list[int],
    loss_masks: list[torch.Tensor],
    calculate_per_token_loss: bool = False,
) -> Reducer:
    """Each sample counts once, also where several are parts of one rollout."""
    return get_sum_of_sample_mean(total_lengths, response_lengths, loss_masks)
