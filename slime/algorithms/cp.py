"""Context parallelism of packed sequences: who holds which token.

A sequence is padded to 2 * cp_size equal chunks; rank r holds chunks r and 2 * cp_size - 1 - r
(zig-zag), which balances causal attention. The logit at position t predicts token t + 1, so of a
response a rank holds the tokens whose PREDICTING position is in its chunks.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torch.distributed as dist

Span = tuple[int, int]
PerToken = TypeVar("PerToken", list, torch.Tensor)
Length = TypeVar("Length", int, torch.Tensor)


def chunk_length(total_length: Length, cp_size: int) -> Length:
    """Length of each of the 2 * cp_size chunks of a padded sequence."""
    return -(-total_length // (2 * cp_size))


def slice_zigzag(
    tokens: torch.Tensor, pad_value: float, cp_size: int, cp_rank: int
) -> torch.Tensor:
    """This rank's two chunks of ``tokens`` [total, ...], padded at the end with ``pad_value``."""
    if cp_size == 1:
        return tokens
    chunk = chunk_length(tokens.size(0), cp_size)
    padding = tokens.new_full((2 * cp_size * chunk - tokens.size(0), *tokens.shape[1:]), pad_value)
    chunks = torch.cat([tokens, padding]).split(chunk)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def logits_and_tokens_offset(
    total_length: int, response_length: int, cp_size: int, cp_rank: int
) -> tuple[int, tuple[Span, Span], tuple[Span, Span], tuple[Span, Span]]:
    """Where this rank's part of a response lies.

    Returns:
        (chunk length, its two chunks, the positions in each chunk whose logits predict response
        tokens, the positions of those tokens). Spans [begin, end) of positions in the whole
        sequence; an empty span has begin == end.
    """
    chunk = chunk_length(total_length, cp_size)
    starts = (cp_rank * chunk, (2 * cp_size - 1 - cp_rank) * chunk)
    first, last = total_length - response_length - 1, total_length - 1
    chunks, logits, tokens = [], [], []
    for start in starts:
        begin = min(max(start, first), last)
        end = max(min(start + chunk, last), begin)
        chunks.append((start, start + chunk))
        logits.append((begin, end))
        tokens.append((begin + 1, end + 1))
    return chunk, (chunks[0], chunks[1]), (logits[0], logits[1]), (tokens[0], tokens[1])


def response_spans(
    total_length: int, response_length: int, cp_size: int, cp_rank: int
) -> list[Span]:
    """The spans of the response [0, response_length) that this rank holds."""
    if cp_size == 1:
        return [(0, response_length)]
    _, _, _, tokens = logits_and_tokens_offset(total_length, response_length, cp_size, cp_rank)
    prompt_length = total_length - response_length
    return [(begin - prompt_length, end - prompt_length) for begin, end in tokens]


def slice_response(
    values: PerToken, total_length: int, response_length: int, cp_size: int, cp_rank: int
) -> PerToken:
    """This rank's part of a per-response-token list or tensor [response_length, ...].

    Raises:
        ValueError: ``values`` has another length.
    """
    if len(values) != response_length:
        raise ValueError(f"{len(values)} values for a response of {response_length} tokens")
    if cp_size == 1:
        return values
    parts = [
        values[b:e] for b, e in response_spans(total_length, response_length, cp_size, cp_rank)
    ]
    return torch.cat(parts) if isinstance(values, torch.Tensor) else parts[0] + parts[1]


def gather_response(
    local: torch.Tensor,
    total_length: int,
    response_length: int,
    group: dist.ProcessGroup | None,
) -> torch.Tensor:
    """The whole response [response_length] from the parts of all ranks of ``group``;
    differentiable.

    Each rank puts its part into zeros and the parts are summed.
    """
    if group is None or group.size() == 1:
        return local
    spans = response_spans(total_length, response_length, group.size(), group.rank())
    split = spans[0][1] - spans[0][0]
    whole = local.new_zeros(response_length)
    rows = torch.cat([torch.arange(b, e, device=local.device) for b, e in spans])
    whole = whole.index_copy(0, rows, torch.cat([local[:split], local[split:]]))
    return _SumOverRanks.apply(whole, group)


class _SumOverRanks(torch.autograd.Function):
    """All-reduce whose backward sums too: every rank's loss reads the whole response."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        value = value.clone()
        dist.all_reduce(value, group=group)
        return value

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None
