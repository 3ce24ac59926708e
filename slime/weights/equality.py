"""Checksums of what every rank of an engine must hold, from the Hugging Face tensors sent to it.

SGLang hashes whole parameters. In host memory: SHA-256 of their bytes, the first 8 as hexadecimal
digits. On a GPU: two sums of mixed 32-bit words (the mixer of MurmurHash3) for every tile of 8192
words, and the sum of the tiles mixed once more (splitmix64).
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch

from slime.weights.shards import Shards

_TILE = 8192
_TILES_AT_ONCE = 512
_SEED = 0x243F6A88
_SEEDS = (_SEED, (_SEED * 0x9E3779B1 ^ 0xDEADBEEF) & 0xFFFFFFFF)
_FACTORS, _ROTATIONS = (0x27D4EB2D, 0x165667B1), (15, 13)


class ExpectedChecksums:
    """Grows with every bucket; only parts of tensors not yet complete are kept.

    Args:
        config: the model's config.json.
        sizes: how many ranks the engines have.
        device: of the engines, `cpu` or `cuda`.
    """

    def __init__(self, config: Mapping[str, Any], sizes: Collection[int], *, device: str) -> None:
        self._shards, self._sizes = Shards(config, device), set(sizes)
        self._checksum = _CHECKSUMS[device]
        self._sums: dict[tuple[int, int], dict[str, str]] = {
            (rank, size): {} for size in self._sizes for rank in range(size)
        }
        self._parts: dict[str, dict[int, tuple[str, torch.Tensor]]] = {}

    def add(self, bucket: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take in (HF name, whole tensor) pairs."""
        for name, tensor in bucket:
            place = self._shards.place(name)
            if place.count == 1:
                self._complete(place.whole, [(name, tensor.detach())])
                continue
            parts = self._parts.setdefault(place.whole, {})
            parts[place.index] = (name, tensor.detach().clone())
            if len(parts) == place.count:
                self._complete(place.whole, [parts[index] for index in range(place.count)])
                del self._parts[place.whole]

    def _complete(self, whole: str, parts: list[tuple[str, torch.Tensor]]) -> None:
        for (rank, size), sums in self._sums.items():
            pieces = [p for n, t in parts for p in self._shards.part(n, t, rank, size)]
            sums[whole] = self._checksum(pieces)

    def compare(self, answer: Mapping[str, Any]) -> str:
        """What differs in an answer of `/weights_checker`; empty if nothing does."""
        ranks = answer["ranks"]
        if len(ranks) not in self._sizes:
            return f"gave the checksums of {len(ranks)} ranks, not of {sorted(self._sizes)}"
        for rank, entry in enumerate(ranks):
            if problem := _difference(self._sums[rank, len(ranks)], entry["checksums"]):
                return problem if len(ranks) == 1 else f"{problem} (rank {rank})"
        return ""


def _difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    if not found:
        return "gave no checksums"
    wrong = [name for name, value in found.items() if expected.get(name, value) != value]
    unknown = sorted(found.keys() - expected.keys())
    if wrong:
        return "has other weights than were sent: " + ", ".join(wrong)
    if unknown:
        return "has weights whose checksums are not known: " + ", ".join(unknown)
    return ""


def host_checksum(parts: Iterable[torch.Tensor]) -> str:
    """That of the parts one after the other, as SGLang writes it for a tensor in host memory."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(memoryview(_flat_bytes(part).cpu().numpy()))
    return digest.hexdigest()[:16]


def device_checksum(parts: Iterable[torch.Tensor]) -> str:
    """That of the parts one after the other, as SGLang writes it for a tensor on a GPU.

    The words stay on the device they are on; each 32-bit number is kept in 64 bits.
    """
    content = torch.cat([_flat_bytes(part) for part in parts])
    content = torch.nn.functional.pad(content, (0, -content.numel() % 4))
    words, total = content.view(torch.int32), 0
    for start in range(0, words.numel(), _TILE * _TILES_AT_ONCE):
        total += _tiles(words[start : start + _TILE * _TILES_AT_ONCE], start, words.numel())
    mask = 2**64 - 1
    total &= mask
    if words.numel():
        total = (total ^ total >> 30) * 0xBF58476D1CE4E5B9 & mask
        total = (total ^ total >> 27) * 0x94D049BB133111EB & mask
        total ^= total >> 31
    return f"{total:016x}"


def _tiles(words: torch.Tensor, start: int, count: int) -> int:
    """Sum of the 64-bit values of some tiles; `start` is the place of the first word of `count`."""
    place = torch.arange(start, start + words.numel(), device=words.device) & 0xFFFFFFFF
    value = words.long() & 0xFFFFFFFF
    halves = []
    for factor, rotation, seed in zip(_FACTORS, _ROTATIONS, _SEEDS, strict=True):
        rotated = (place << rotation | place >> 32 - rotation) & 0xFFFFFFFF
        mixed = _mix(value ^ (_times(place, factor) + seed & 0xFFFFFFFF) ^ rotated)
        mixed = torch.nn.functional.pad(mixed, (0, -mixed.numel() % _TILE)).view(-1, _TILE)
        halves.append(_mix((mixed.sum(1) & 0xFFFFFFFF) ^ (4 * count & 0xFFFFFFFF)))
    return int((halves[0] << 32 | halves[1]).sum()) & 0xFFFFFFFFFFFFFFFF


def _mix(x: torch.Tensor) -> torch.Tensor:
    x = _times(x ^ x >> 16, 0x85EBCA6B)
    x = _times(x ^ x >> 13, 0xC2B2AE35)
    return x ^ x >> 16


def _times(x: torch.Tensor, factor: int) -> torch.Tensor:
    """The low 32 bits of a product; what overflows 64 bits lies above them."""
    return x * factor & 0xFFFFFFFF


def _flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


_CHECKSUMS: dict[str, Callable[[Iterable[torch.Tensor]], str]] = {
    "cpu": host_checksum,
    "cuda": device_checksum,
}
