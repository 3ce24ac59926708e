"""Log-probabilities and entropies of tokens from logits whose vocabulary may be split over ranks.

One autograd function does both. It keeps the logits it was given and three numbers per row, and
recomputes the softmax in backward, chunk by chunk, so the extra memory is one chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

# Numbers of a piece of logits where no size is asked for: 32 MB. Three such pieces exist at once.
_PIECE = 2**23
# What a column that is no token of the vocabulary gets: exp() gives exactly 0, and 0 * _EXCLUDED is
# 0.
_EXCLUDED = torch.finfo(torch.float32).min / 4


@dataclass(frozen=True)
class VocabShard:
    """Which columns of the vocabulary this rank's logits are, and how to read them."""

    group: dist.ProcessGroup | None
    start: int
    valid: int  # the first `valid` local columns are tokens; the rest is padding
    temperature: float

    @classmethod
    def of(
        cls,
        columns: int,
        group: dist.ProcessGroup | None,
        vocab_size: int | None,
        temperature: float,
    ) -> VocabShard:
        """The shard of this rank: every rank of ``group`` holds ``columns`` consecutive columns."""
        start = columns * group.rank() if group is not None else 0
        valid = columns if vocab_size is None else min(max(vocab_size - start, 0), columns)
        return cls(group, start, valid, temperature)

    def read(self, logits: torch.Tensor) -> torch.Tensor:
        """A float32 copy of a chunk of logits, divided by the temperature, padding excluded."""
        scaled = torch.div(logits.float(), self.temperature)
        if self.valid < scaled.size(-1):
            scaled[:, self.valid :] = _EXCLUDED
        return scaled

    def reduce(self, value: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> torch.Tensor:
        """All-reduce over the ranks that share the vocabulary, in place."""
        if self.group is not None and self.group.size() > 1:
            dist.all_reduce(value, op=op, group=self.group)
        return value

    def locate(self, tokens: torch.Tensor, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Local column of each token (0 where another rank has it) and whether it is here."""
        local = tokens - self.start
        here = (local >= 0) & (local < columns)
        return torch.where(here, local, 0), here


class _LogProbAndEntropy(torch.autograd.Function):
    """(logits [n, v], tokens [n]) -> (log-prob [n], entropy [n]), float32."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        tokens: torch.Tensor,
        shard: VocabShard,
        chunk: int,
        with_entropy: bool,
        entropy_grad: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = [
            _forward_chunk(rows, ids, shard, with_entropy)
            for rows, ids in zip(logits.split(chunk), tokens.split(chunk), strict=True)
        ]
        log_prob, log_z, entropy = (torch.cat(parts) for parts in zip(*outputs, strict=True))
        ctx.save_for_backward(logits, tokens, log_z, entropy)
        ctx.shard, ctx.chunk, ctx.entropy_grad = shard, chunk, entropy_grad
        if not entropy_grad:
            ctx.mark_non_differentiable(entropy)
        return log_prob, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_log_prob: torch.Tensor, grad_entropy: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None, None, None]:
        logits, tokens, log_z, entropy = ctx.saved_tensors
        shard: VocabShard = ctx.shard
        grad = torch.empty_like(logits)
        for begin in range(0, logits.size(0), ctx.chunk):
            rows = slice(begin, begin + ctx.chunk)
            log_p = shard.read(logits[rows]).sub_(log_z[rows, None])
            p = log_p.exp()
            d_log_prob = grad_log_prob[rows].float()
            out = p * -d_log_prob[:, None]
            column, here = shard.locate(tokens[rows], logits.size(-1))
            out.scatter_add_(1, column[:, None], (d_log_prob * here)[:, None])
            if ctx.entropy_grad:
                # dH/dz_j = -p_j (log p_j + H)
                log_p.add_(entropy[rows, None]).mul_(p).mul_(grad_entropy[rows, None])
                out.sub_(log_p)
            grad[rows] = out.div_(shard.temperature)
        return grad, None, None, None, None, None


def _forward_chunk(
    logits: torch.Tensor, tokens: torch.Tensor, shard: VocabShard, with_entropy: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-prob, log of the normaliser and entropy of one chunk of rows."""
    z = shard.read(logits)
    column, here = shard.locate(tokens, z.size(-1))
    target = z.gather(1, column[:, None]).squeeze(1)
    target = shard.reduce(torch.where(here, target, 0.0))
    top = shard.reduce(z.amax(-1), dist.ReduceOp.MAX)
    p = (z - top[:, None]).exp_()
    total = shard.reduce(p.sum(-1))
    log_z = total.log() + top
    if not with_entropy:
        return target - log_z, log_z, torch.zeros_like(log_z)
    # H = log Z - E[z]
    mean_logit = shard.reduce((p * z).sum(-1)) / total
    return target - log_z, log_z, log_z - mean_logit


def calculate_log_probs_and_entropy(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    tp_group: dist.ProcessGroup | None,
    with_entropy: bool = False,
    chunk_size: int = -1,
    log_prob_keep_mask: torch.Tensor | None = None,
    with_entropy_grad: bool = True,
    *,
    temperature: float = 1.0,
    vocab_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probability of each token and, if asked for, the entropy of its distribution (nats).

    Args:
        logits: [n, v]; v is this rank's share of the (padded) vocabulary. Row i predicts token i.
        tokens: [n] token ids of the whole vocabulary.
        tp_group: the ranks over which the vocabulary is split; None when it is not.
        chunk_size: rows worked on at once; -1 for as many as make 32 MB. Bounds the extra memory,
            changes no value.
        log_prob_keep_mask: [n, v] bool. The log-probs are then normalised over the kept tokens only
            (what a sampler with top-p did); the entropy stays that of the full distribution.
        with_entropy_grad: False gives a detached entropy (a metric).
        temperature: the logits are divided by it first.
        vocab_size: number of real tokens; columns beyond it are padding and have probability 0.

    Returns:
        (log_probs [n], entropy [n] or None), float32.
    """
    columns = logits.size(-1)
    shard = VocabShard.of(columns, tp_group, vocab_size, temperature)
    chunk = chunk_size if chunk_size > 0 else max(_PIECE // columns, 1)
    entropy_grad = with_entropy and with_entropy_grad
    kept = logits
    if log_prob_keep_mask is not None:
        kept = logits.masked_fill(~log_prob_keep_mask, _EXCLUDED)
    both = with_entropy and kept is logits
    log_probs, entropy = _LogProbAndEntropy.apply(
        kept, tokens, shard, chunk, both, entropy_grad and both
    )
    if with_entropy and not both:
        _, entropy = _LogProbAndEntropy.apply(logits, tokens, shard, chunk, True, entropy_grad)
    return log_probs, entropy if with_entropy else None
