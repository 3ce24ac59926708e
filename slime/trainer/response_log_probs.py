"""Log-probs of response tokens, normalised over what the sampler could have drawn."""

from __future__ import annotations

from argparse import Namespace

import torch
from megatron.core import parallel_state

from slime.algorithms.cp import response_spans
from slime.algorithms.log_probs import calculate_log_probs_and_entropy
from slime.trainer.cp_utils import cp_group
from slime.trainer.loss_terms import split_local
from slime.trainer.micro_batch import MicroBatch


def response_log_probs(
    args: Namespace,
    logits: torch.Tensor,
    micro_batch: MicroBatch,
    entropy: bool,
    entropy_grad: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probs [n] (and entropies [n]) of the response tokens, at the rollout temperature.

    With ``--rollout-top-p`` below 1 they are normalised over the tokens that the engine kept.

    Args:
        logits: [1, n, v / tp] at the positions that predict them.
    """
    group = parallel_state.get_tensor_model_parallel_group()
    keep = None
    if "rollout_top_p_token_ids" in micro_batch.data and args.rollout_top_p != 1.0:
        keep = top_p_mask(micro_batch, logits.size(-1), group.rank() * logits.size(-1))
    return calculate_log_probs_and_entropy(
        logits[0],
        micro_batch.targets,
        group,
        with_entropy=entropy,
        chunk_size=args.log_probs_chunk_size,
        log_prob_keep_mask=keep,
        with_entropy_grad=entropy_grad,
        temperature=args.rollout_temperature,
        vocab_size=args.hf_architecture["vocab_size"],
    )


def top_p_mask(micro_batch: MicroBatch, columns: int, first_column: int) -> torch.Tensor:
    """[n, columns] bool: the tokens that top-p sampling kept at each response token held here.

    A position without ids (a tool's observation) keeps all.
    """
    group, device = cp_group(), micro_batch.targets.device
    mask = torch.zeros(len(micro_batch.targets), columns, dtype=torch.bool, device=device)
    row = 0
    samples = zip(
        micro_batch.of("rollout_top_p_token_ids"),
        micro_batch.of("rollout_top_p_token_offsets"),
        micro_batch.of("total_lengths"),
        micro_batch.of("response_lengths"),
        strict=True,
    )
    for ids, offsets, total, response in samples:
        for begin, end in response_spans(total, response, group.size(), group.rank()):
            counts = offsets[begin + 1 : end + 1] - offsets[begin:end]
            rows = torch.arange(row, row + end - begin, device=device)
            mask[rows[counts == 0]] = True
            kept = ids[offsets[begin] : offsets[end]] - first_column
            here = (kept >= 0) & (kept < columns)
            mask[rows.repeat_interleave(counts)[here], kept[here]] = True
            row += end - begin
    return mask


def log_probs_function(
    args: Namespace, micro_batch: MicroBatch, output: torch.Tensor, non_loss_data: bool = True
) -> dict[str, list[torch.Tensor]]:
    """What the forward-only schedule calls: ``log_probs``, one tensor per sample.

    With ``--use-rollout-entropy`` ``entropy`` too.
    """
    log_probs, entropy = response_log_probs(
        args, output, micro_batch, args.use_rollout_entropy, False
    )
    result = {"log_probs": split_local(micro_batch, log_probs)}
    if entropy is not None:
        result["entropy"] = split_local(micro_batch, entropy)
    return result
