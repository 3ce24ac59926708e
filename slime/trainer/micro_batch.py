"""Pack the samples of a micro-batch end to end (thd), and remember where their responses lie."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from megatron.core.packed_seq_params import PackedSeqParams

from slime.algorithms.cp import chunk_length, logits_and_tokens_offset, response_spans
from slime.trainer.cp_utils import cp_group, slice_with_cp
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


def response_rows(
    begin: int, total: int, response: int, cp_size: int, cp_rank: int
) -> torch.Tensor:
    """Rows of the packed part held here whose outputs predict a sample's response tokens.

    Args:
        begin: the row at which the sample's part begins.
        total, response: lengths of the whole sample and of its response.
    """
    if cp_size == 1:
        return torch.arange(begin + total - response - 1, begin + total - 1)
    chunk, chunks, logits, _ = logits_and_tokens_offset(total, response, cp_size, cp_rank)
    firsts = [begin + half * chunk - chunks[half][0] for half in range(2)]
    return torch.cat(
        [torch.arange(at + b, at + e) for at, (b, e) in zip(firsts, logits, strict=True)]
    )


def ranges(begins: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """begin, begin + 1, ..., begin + length - 1 of each pair, end to end."""
    ends = lengths.cumsum(0)
    within = torch.arange(int(ends[-1])) - (ends - lengths).repeat_interleave(lengths)
    return within + begins.repeat_interleave(lengths)


def _pack_whole(args: Namespace, data: RolloutBatch, samples: list[int], step: int) -> MicroBatch:
    """:func:`pack` of one context-parallel rank, without operations for every sample."""
    ids = [data["tokens"][index] for index in samples]
    lengths = [part.size(0) for part in ids]
    responses = torch.tensor([data["response_lengths"][index] for index in samples])
    ends = torch.tensor(lengths).cumsum(0)
    rows = ranges(ends - responses - 1, responses).to(ids[0].device)
    padding = -int(ends[-1]) % _pad_multiple(args)
    if padding:
        ids.append(ids[0].new_zeros(padding))
        lengths.append(padding)
    tokens, totals = torch.cat(ids), torch.tensor(lengths)
    return MicroBatch(
        tokens=tokens[None],
        position_ids=ranges(torch.zeros_like(totals), totals).to(tokens.device)[None],
        packed_seq_params=_packed_seq_params(lengths, tokens.device),
        logit_rows=rows,
        targets=tokens[rows + 1],
        samples=samples,
        step=step,
        data=data,
    )


def pack(args: Namespace, data: RolloutBatch, samples: list[int], step: int) -> MicroBatch:
    """Pack the samples; padding at the end is a sequence that no token attends to."""
    group = cp_group()
    cp_size, cp_rank = group.size(), group.rank()
    if cp_size == 1:
        return _pack_whole(args, data, samples, step)
    tokens, positions, rows, targets, lengths = [], [], [], [], []
    begin = 0
    for index in samples:
        ids, total, response = (
            data["tokens"][index],
            data["total_lengths"][index],
            data["response_lengths"][index],
        )
        held, length = slice_with_cp(ids, 0), 2 * cp_size * chunk_length(total, cp_size)
        rows.append(response_rows(begin, total, response, cp_size, cp_rank))
        for first, last in response_spans(total, response, cp_size, cp_rank):
            targets.append(ids[total - response + first : total - response + last])
        tokens.append(held)
        positions.append(slice_with_cp(torch.arange(length), 0))
        lengths.append(length)
        begin += len(held)
    padding = -begin % _pad_multiple(args)
    if padding:
        tokens.append(tokens[0].new_zeros(padding))
        positions.append(torch.arange(padding))
        lengths.append(padding * cp_size)
    device = tokens[0].device
    return MicroBatch(
        tokens=torch.cat(tokens)[None],
        position_ids=torch.cat(positions).to(device)[None],
        packed_seq_params=_packed_seq_params(lengths, device),
        logit_rows=torch.cat(rows).to(device),
        targets=torch.cat(targets),
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
