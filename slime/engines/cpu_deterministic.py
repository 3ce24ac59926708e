"""SGLang's `--enable-deterministic-inference` on a CPU, where SGLang itself refuses it.

What the option promises has two halves. Sampling: a token follows from the request's
`sampling_seed`, its position and its probabilities, not from the order of requests; the hash that
SGLang's sampler takes its noise from exists for GPUs only, so the one here stands in. Arithmetic: a
request's numbers do not depend on what it is batched with; SGLang has GPU kernels for that, and on
a CPU the engine computes one request at a time and shares no prefixes (`command.cpu_options`).
"""

import os
from typing import Any

import torch

VARIABLE = "SGLANG_ENABLE_DETERMINISTIC_INFERENCE"
"""Set for engines that are to be deterministic; SGLang's own name."""

_MASK = 0xFFFFFFFF


def register() -> None:
    """Hook the sampler and lift the refusal, in an engine that is to be deterministic."""
    if os.environ.get(VARIABLE) != "1":
        return
    from sglang.srt.arg_groups import choices
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    choices.add_deterministic_attention_backend_choices(["torch_native"])
    sampler = "sglang.srt.layers.sampler.multinomial_with_seed"
    HookRegistry.register(sampler, multinomial_with_seed, HookType.REPLACE)
    runner = "sglang.srt.model_executor.model_runner.ModelRunner."
    HookRegistry.register(
        runner + "maybe_enable_batch_invariant_mode", _nothing_to_enable, HookType.REPLACE
    )


def _nothing_to_enable(runner: Any) -> None:
    """Batches of one request need no batch-invariant kernels."""


def multinomial_with_seed(
    logprobs: torch.Tensor, seed: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """One token per row, [rows, 1], from log-probabilities [rows, vocabulary].

    The Gumbel-max trick (Maddison et al. 2014, https://arxiv.org/abs/1411.0030) with noise that is
    a hash of the row's seed and position [rows] and of the token.
    """
    tokens = torch.arange(logprobs.shape[1])
    seed, positions = seed.long()[:, None], positions.long()[:, None]
    hashed = murmur3(seed & _MASK, (seed >> 32) & _MASK, positions & _MASK, tokens)
    uniform = (hashed.double() + 0.5) / 2.0**32
    return torch.argmax(logprobs.double() - torch.log(-torch.log(uniform)), dim=1, keepdim=True)


def murmur3(*words: torch.Tensor) -> torch.Tensor:
    """MurmurHash3 (x86, 32 bits, seed 0) of 32-bit words, given as int64 and broadcast."""
    mixed = torch.zeros((), dtype=torch.int64)
    for word in words:  # products wrap around modulo 2**64: their low 32 bits are right
        block = _rotate_left((word * 0xCC9E2D51) & _MASK, 15)
        mixed = mixed ^ ((block * 0x1B873593) & _MASK)
        mixed = (_rotate_left(mixed, 13) * 5 + 0xE6546B64) & _MASK
    mixed = mixed ^ (4 * len(words))
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & _MASK
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & _MASK
    return mixed ^ (mixed >> 16)


def _rotate_left(word: torch.Tensor, bits: int) -> torch.Tensor:
    return ((word << bits) | (word >> (32 - bits))) & _MASK
