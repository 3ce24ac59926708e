"""Checksums of what an engine must hold, from the Hugging Face tensors that were sent.

SGLang joins some tensors of a checkpoint into one (`qkv_proj`, `gate_up_proj`), fills vocabularies
up with rows of zeros, and hashes whole parameters: SHA-256 of their bytes, the first 8 as
hexadecimal digits.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch

# Parameter of the engine -> what it joins along dimension 0, in this order.
_JOINED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
_VOCABULARIES = ("embed_tokens", "lm_head")
_VOCABULARY_MULTIPLE = 64
_PART_OF = {part: whole for whole, parts in _JOINED.items() for part in parts}


class ExpectedChecksums:
    """Grows with every bucket; only parts of tensors not yet complete are kept."""

    def __init__(self) -> None:
        self._sums: dict[str, str] = {}
        self._parts: dict[str, dict[str, torch.Tensor]] = {}

    def add(self, bucket: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take in (HF name, whole tensor) pairs."""
        for name, tensor in bucket:
            module, _, rest = name.rpartition(".")
            prefix, _, layer = module.rpartition(".")  # model.layers.0.self_attn . q_proj . weight
            whole = _PART_OF.get(layer)
            if whole is None:
                filling = _filling(tensor) if layer in _VOCABULARIES else tensor[:0]
                self._sums[name] = checksum([tensor, filling])
                continue
            joined = f"{prefix}.{whole}.{rest}"
            parts = self._parts.setdefault(joined, {})
            parts[layer] = tensor.detach().clone()
            if len(parts) == len(_JOINED[whole]):
                self._sums[joined] = checksum(parts[part] for part in _JOINED[whole])
                del self._parts[joined]

    def compare(self, answer: dict[str, Any]) -> str:
        """What differs in an answer of `/weights_checker`; empty if nothing does."""
        (rank,) = answer["ranks"]  # one GPU per engine: see the check of the option
        found: dict[str, str] = rank["checksums"]
        if not found:
            return "gave no checksums"
        wrong = [name for name, value in found.items() if self._sums.get(name, value) != value]
        unknown = sorted(found.keys() - self._sums.keys())
        if wrong:
            return "has other weights than were sent: " + ", ".join(wrong)
        if unknown:
            return "has weights whose checksums are not known: " + ", ".join(unknown)
        return ""


def checksum(parts: Iterable[torch.Tensor]) -> str:
    """That of the parts one after the other, as SGLang writes it."""
    digest = hashlib.sha256()
    for part in parts:
        flat = part.detach().cpu().contiguous().reshape(-1)
        digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()[:16]


def _filling(vocabulary: torch.Tensor) -> torch.Tensor:
    """The rows of zeros that SGLang adds."""
    rows = -vocabulary.shape[0] % _VOCABULARY_MULTIPLE
    return torch.zeros(rows, *vocabulary.shape[1:], dtype=vocabulary.dtype)
