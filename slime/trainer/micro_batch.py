"""Pack the samples of a micro-batch end to end (thd), and remember where their responses lie."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from megatron.core.packed_seq_params import PackedSeqParams

from slime.algorithms.cp import chunk_length
from slime.trainer.cp_utils import cp_group
from slime.trainer.rollout_tensors import RolloutBatch, batches_of_step


@dataclass(frozen=True)
class MicroBatch:
    """What one forward pass takes, and what its loss needs.

    Attributes:
        tokens, position_ids: [1, t] packed, this context-parallel rank's part.
        packed_seq_params: bounds of the sequences (over all context-parallel ranks).
        logit_rows: [n] rows of the packed logits that predict the response tokens held here, sample
            by sample.
        targets: [n] those tokens.
        samples: indices into the rank's rollout data.
        step: which optimizer step of the rollout this is part of.
        data: the rank's rollout data.
        prediction_losses: [n] of each multi-token-prediction layer, put here by the forward pass.
    """

    tokens: torch.Tensor
    position_ids: torch.Tensor
    packed_seq_params: PackedSeqParams
    logit_rows: torch.Tensor
    targets: torch.Tensor
    samples: list[int]
    step: int
    data: RolloutBatch
    prediction_losses: list[torch.Tensor] = field(default_factory=list)

    def of(self, key: str) -> list[Any]:
        """The values of a per-sample list of the rollout data for this micro-batch's samples."""
        values = self.data[key]
        return [values[index] for index in self.samples]

    def flat(self, key: str) -> torch.Tensor:
        """A per-response-token list as one tensor [n]."""
        return torch.cat(self.of(key))


def _pad_multiple(args: Namespace) -> int:
    """What the packed length is a multiple of: sequence parallelism splits it; GPUs like it."""
    split = args.tensor_model_parallel_size if args.sequence_parallel else 1
    if args.device == "cpu":
        return split
    return split * -(-args.data_pad_size_multiplier // split)


def ranges(begins: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """begin, begin + 1, ..., begin + length - 1 of each pair, end to end."""
    ends = lengths.cumsum(0)
    within = torch.arange(int(ends[-1])) - (ends - lengths).repeat_interleave(lengths)
    return within + begins.repeat_interleave(lengths)


def held_positions(
    totals: torch.Tensor, cp_size: int, cp_rank: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which tokens this context-parallel rank holds of sequences of the lengths ``totals``.

    Returns:
        (positions in their sequences, of all tokens held, end to end; how many of each sequence).
        A position may be beyond the end of its sequence, which is padded to chunks of one length.
    """
    if cp_size == 1:
        return ranges(torch.zeros_like(totals), totals), totals
    chunk = chunk_length(totals, cp_size)
    begins = torch.stack((cp_rank * chunk, (2 * cp_size - 1 - cp_rank) * chunk), 1)
    return ranges(begins.flatten(), chunk.repeat_interleave(2)), 2 * chunk


def response_rows(
    positions: torch.Tensor, held: torch.Tensor, totals: torch.Tensor, responses: torch.Tensor
) -> torch.Tensor:
    """Rows of the packed part held here whose outputs predict response tokens.

    Args:
        positions, held: of :func:`held_positions`.
        totals, responses: lengths of the whole samples and of their responses.
    """
    last = (totals - 1).repeat_interleave(held)
    first = (totals - responses - 1).repeat_interleave(held)
    return ((positions >= first) & (positions < last)).nonzero()[:, 0]


def pack(args: Namespace, data: RolloutBatch, samples: list[int], step: int) -> MicroBatch:
    """Pack the samples; padding at the end is a sequence that no token attends to.

    There are no operations for each sample: a step has thousands.
    """
    group = cp_group()
    ids = torch.cat([data["tokens"][index] for index in samples])
    totals, responses = (
        torch.tensor([data[key][index] for index in samples])
        for key in ("total_lengths", "response_lengths")
    )
    positions, held = held_positions(totals, group.size(), group.rank())
    rows = response_rows(positions, held, totals, responses).to(ids.device)
    lengths = (held * group.size()).tolist()
    # Where each token lies among the whole samples; behind them is a 0, for all that is padding.
    begins, ends = (x.repeat_interleave(held) for x in (totals.cumsum(0) - totals, totals))
    places = torch.where(positions < ends, positions + begins, len(ids))
    if padding := -len(positions) % _pad_multiple(args):
        positions = torch.cat((positions, torch.arange(padding)))
        places = torch.nn.functional.pad(places, (0, padding), value=len(ids))
        lengths.append(padding * group.size())
    places = places.to(ids.device)
    return MicroBatch(
        tokens=torch.nn.functional.pad(ids, (0, 1))[places][None],
        position_ids=positions.to(ids.device)[None],
        packed_seq_params=_packed_seq_params(lengths, ids.device),
        logit_rows=rows,
        targets=ids[places[rows] + 1],
        samples=samples,
        step=step,
        data=data,
    )


def _packed_seq_params(lengths: list[int], device: torch.device) -> PackedSeqParams:
    bounds = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32).to(device)
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=bounds,
        cu_seqlens_kv=bounds,
        max_seqlen_q=max(lengths),
        max_seqlen_kv=max(lengths),
    )


def micro_batches_of_step(args: Namespace, data: RolloutBatch, step: int) -> list[MicroBatch]:
    """The micro-batches of one optimizer step, packed."""
    return [pack(args, data, list(samples), step) for samples in batches_of_step(data, step)]


def iterators(micro_batches: list[MicroBatch], chunks: int) -> list[Iterator[MicroBatch]]:
    """One iterator per virtual pipeline stage over the same micro-batches."""
    return [iter(micro_batches) for _ in range(chunks)]
