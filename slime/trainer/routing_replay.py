"""Routing replay: tokens go to the experts they went to before, whatever the router says now.

A mixture of experts may route a token differently after an update, or in another engine; the ratio
of probabilities then compares two networks. With ``--use-routing-replay`` the routes of the
log-prob pass are recorded and replayed in training. With ``--use-rollout-routing-replay`` those
that the engine reported are replayed in both (R3, https://arxiv.org/abs/2510.11370). Only the
choice is replayed: the weights of the chosen experts come from the present router, which gets its
gradient.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.transformer.moe.router import TopKRouter

from slime.trainer.cp_utils import slice_with_cp
from slime.trainer.micro_batch import MicroBatch
from slime.trainer.rollout_tensors import NOT_RECORDED

TopK = Callable[..., tuple[torch.Tensor, torch.Tensor]]
Key = tuple[int, tuple[int, ...]]


class _Tape:
    """Stands in for the choice of one router; Megatron calls :meth:`get_replay_topk`.

    A forward pass uses what was set for it. Recomputation in the backward pass comes in the order
    of the forward passes and uses what those used.
    """

    def __init__(self, layer: int) -> None:
        self.layer = layer  # counted over the whole model, from 0
        self.recording: list[torch.Tensor] | None = None
        self.next: torch.Tensor | None = None
        self.replaying = False
        self._used: list[torch.Tensor] = []

    def get_replay_topk(
        self,
        scores: torch.Tensor,
        topk: int,
        num_groups: int | None = None,
        group_topk: int | None = None,
        default_compute_topk: TopK | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and indices of the experts, [tokens, topk] each."""
        assert default_compute_topk is not None
        if not self.replaying:
            chosen, experts = default_compute_topk(scores, topk, num_groups, group_topk)
            if self.recording is not None:
                self.recording.append(experts.detach())
            return chosen, experts
        if self.next is not None:
            given, self.next = self.next, None
            self._used.append(given)
        else:
            given = self._used.pop(0)
        _, own = default_compute_topk(scores, topk, num_groups, group_topk)
        experts = torch.where(given == NOT_RECORDED, own, given)
        return scores.gather(1, experts), experts

    def stop(self) -> None:
        """Back to the router's own choice."""
        self.recording, self.next, self.replaying = None, None, False
        self._used.clear()


class RoutingReplay:
    """Records and replays the routes of a model's micro-batches; does nothing for dense models."""

    def __init__(
        self, args: Namespace, model: list[DistributedDataParallel], role: str = "actor"
    ) -> None:
        self._args = args
        self._from_rollout = args.use_rollout_routing_replay
        wanted = args.use_routing_replay or args.use_rollout_routing_replay
        self.enabled = wanted and role == "actor"
        self._tapes: dict[int, list[_Tape]] = {}  # by chunk, as the schedule names it
        self._recorded: dict[Key, dict[int, torch.Tensor]] = {}
        self._mode: Literal["off", "record", "replay"] = "off"
        for chunk in model if self.enabled else ():
            routers = [  # of the decoder: predictions of later tokens are not what was sampled
                module
                for name, module in chunk.named_modules()
                if isinstance(module, TopKRouter) and ".mtp." not in name
            ]
            self._tapes[id(chunk)] = [_Tape(router.layer_number - 1) for router in routers]
            for router, tape in zip(routers, self._tapes[id(chunk)], strict=True):
                router.router_replay = tape

    @contextmanager
    def log_probs(self) -> Iterator[None]:
        """Around the policy's log-prob pass: record, or replay what the rollout recorded."""
        with self._as("replay" if self._from_rollout else "record"):
            yield

    @contextmanager
    def training(self) -> Iterator[None]:
        """Around a training step: replay, if there is anything to replay."""
        with self._as("replay" if self._from_rollout or self._recorded else "off"):
            yield

    @contextmanager
    def _as(self, mode: Literal["off", "record", "replay"]) -> Iterator[None]:
        self._mode = mode if self.enabled else "off"
        try:
            yield
        finally:
            self._mode = "off"
            for tape in self._all():
                tape.stop()

    def forget(self) -> None:
        """Drop what was recorded; a new rollout begins."""
        self._recorded.clear()

    def before_forward(self, chunk: DistributedDataParallel, micro_batch: MicroBatch) -> None:
        """Set the tapes of a chunk for the forward pass of a micro-batch that comes now."""
        if self._mode == "off":
            return
        tapes = self._tapes[id(chunk)]
        key = (micro_batch.step, tuple(micro_batch.samples))
        if self._mode == "record":
            for tape in tapes:
                tape.recording = []
                self._recorded.setdefault(key, {})
            self._open = (key, tapes)
            return
        given = self._rollout_routes(micro_batch, tapes) if self._from_rollout else None
        for tape in tapes:
            tape.replaying = True
            tape.next = given[tape.layer] if given else self._recorded[key][tape.layer]

    def after_forward(self) -> None:
        """Keep what the forward pass recorded."""
        if self._mode != "record":
            return
        key, tapes = self._open
        for tape in tapes:
            assert tape.recording is not None
            (self._recorded[key][tape.layer],) = tape.recording

    def _all(self) -> Iterator[_Tape]:
        for tapes in self._tapes.values():
            yield from tapes

    def _rollout_routes(
        self, micro_batch: MicroBatch, tapes: list[_Tape]
    ) -> dict[int, torch.Tensor]:
        """By layer, the experts of this rank's tokens: [tokens, topk] in the packed order."""
        parts = [
            _held_rows(torch.as_tensor(routes, device=micro_batch.tokens.device), total)
            for routes, total in zip(
                micro_batch.of("rollout_routed_experts"),
                micro_batch.of("total_lengths"),
                strict=True,
            )
        ]
        rows = torch.cat(parts)
        padding = micro_batch.tokens.size(1) - len(rows)
        rows = torch.nn.functional.pad(rows, (0, 0, 0, 0, 0, padding), value=NOT_RECORDED)
        if self._args.sequence_parallel:
            size = parallel_state.get_tensor_model_parallel_world_size()
            rows = rows.chunk(size)[parallel_state.get_tensor_model_parallel_rank()]
        return {tape.layer: rows[:, tape.layer].long() for tape in tapes}


def _held_rows(routes: torch.Tensor, total: int) -> torch.Tensor:
    """[T - 1, layers, topk] of a sample -> rows of the tokens this context-parallel rank holds.

    The last token was not routed when it was sampled; padding never was.
    """
    unknown = torch.full_like(routes[:1], NOT_RECORDED)
    places = slice_with_cp(torch.arange(total, device=routes.device), total)
    return torch.cat([routes, unknown.expand(2, -1, -1)])[places]
