"""Multi-token prediction: layers that learn to guess further tokens, for speculative decoding.

Layer k takes the hidden state of a position and the embedding of the k-th token after it, and
predicts the token after that (DeepSeek-V3, arXiv:2412.19437, section 2.2). Here the layers follow
the policy and never move it: hidden states, embeddings and output layer are taken as they are.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel

from slime.algorithms.log_probs import calculate_log_probs_and_entropy
from slime.trainer.micro_batch import MicroBatch
from slime.trainer.packed_attention import gather_rows


class PredictionModel(GPTModel):
    """Megatron's GPT, whose prediction layers run where gradients are wanted, and only there.

    Attributes:
        prediction_states: what each of them gave in the last forward pass.
    """

    prediction_states: tuple[torch.Tensor, ...] = ()

    def _postprocess(self, hidden_states: torch.Tensor, **given: Any) -> torch.Tensor:
        """The policy's logits [1, t, v / tp]; Megatron's own gives losses, and wants labels."""
        self.prediction_states = ()
        if torch.is_grad_enabled():
            names = ("input_ids", "position_ids", "attention_mask", "rotary_pos_emb")
            states = self.mtp(
                hidden_states=hidden_states.detach(),
                embedding=lambda **ids: self.embedding(**ids).detach(),
                packed_seq_params=given["packed_seq_params"],
                **{name: given[name] for name in names},
            )
            self.prediction_states = states.chunk(1 + self.config.mtp_num_layers)[1:]
        logits, _ = self.output_layer(hidden_states, weight=self._shared_weight())
        return logits.transpose(0, 1).contiguous()

    def _shared_weight(self) -> torch.Tensor | None:
        """The embedding, where it is the output layer's weight too."""
        shared = self.share_embeddings_and_output_weights
        return self.shared_embedding_or_output_weight() if shared else None

    def prediction_logits(self, rows: torch.Tensor, gathered: bool) -> list[torch.Tensor]:
        """[n, v / tp] of each layer at ``rows`` of the sequence.

        Args:
            gathered: the output layer gathers the sequence (sequence parallelism).
        """
        weight = self._shared_weight()
        weight = (self.output_layer.weight if weight is None else weight).detach()
        result = []
        for states in self.prediction_states:
            chosen = states if gathered else gather_rows(states, rows)
            logits, _ = self.output_layer(chosen, weight=weight)
            result.append((gather_rows(logits, rows) if gathered else logits)[:, 0])
        self.prediction_states = ()
        return result


def prediction_losses(
    args: Namespace, model: PredictionModel, micro_batch: MicroBatch
) -> list[torch.Tensor]:
    """Of each layer the negative log-likelihoods [n] of the response tokens.

    0 where it has no say: layer k does not predict a response's first k tokens.
    """
    losses, mask = [], micro_batch.flat("loss_masks")
    all_logits = model.prediction_logits(micro_batch.logit_rows, args.sequence_parallel)
    for depth, logits in enumerate(all_logits, start=1):
        log_probs, _ = calculate_log_probs_and_entropy(
            logits,
            _moved(micro_batch, micro_batch.targets, -depth),
            parallel_state.get_tensor_model_parallel_group(),
            with_entropy=False,
            chunk_size=args.log_probs_chunk_size,
            temperature=args.rollout_temperature,
            vocab_size=args.hf_architecture["vocab_size"],
        )
        # Now they stand where the policy predicts the token before; a mask belongs to a token.
        moved = _moved(micro_batch, log_probs, depth)
        keep = _moved(micro_batch, torch.ones_like(micro_batch.targets), depth) * mask
        losses.append(-torch.where(keep != 0, moved, 0.0))
    return losses


def _moved(micro_batch: MicroBatch, values: torch.Tensor, places: int) -> torch.Tensor:
    """[n] per response token, each response moved on by so many places; 0 moves in."""
    result = []
    for part in values.split(micro_batch.of("response_lengths")):
        distance = min(abs(places), len(part))
        gap = part.new_zeros(distance)
        kept = part[: len(part) - distance] if places > 0 else part[distance:]
        result.append(torch.cat([gap, kept] if places > 0 else [kept, gap]))
    return torch.cat(result)
