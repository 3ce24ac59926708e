"""What changed between two versions of a tensor, as few bytes, and checksums of the result.

Small steps change the low bits of many numbers (xor) or, in low precision, few numbers at all
(overwrite). Both are laid out by byte position (all first bytes, all second bytes, ...), which
zstandard compresses much better than numbers one after the other.
"""

import importlib
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash
import zstandard

Bytes = npt.NDArray[np.uint8]
_LEVEL = 3
_UNSIGNED: dict[int, type[np.unsignedinteger[Any]]] = {
    1: np.uint8,
    2: np.uint16,
    4: np.uint32,
    8: np.uint64,
}


def encode(new: Bytes, old: Bytes, itemsize: int, encoding: str) -> bytes:
    """The change from `old` to `new`, both flat bytes of numbers of `itemsize` bytes; empty for
    none."""
    if np.array_equal(new, old):
        return b""
    if encoding == "xor":
        return _compress(_planes(new ^ old, itemsize))
    numbers, before = new.view(_UNSIGNED[itemsize]), old.view(_UNSIGNED[itemsize])
    changed = np.flatnonzero(numbers != before)
    gaps = np.diff(changed, prepend=0).astype(np.uint64)
    values = numbers[changed].view(np.uint8)
    count = np.array([len(changed)], dtype=np.uint64).view(np.uint8)
    parts = [count, _planes(gaps.view(np.uint8), 8), _planes(values, itemsize)]
    return _compress(np.concatenate(parts))


def apply(payload: bytes, target: Bytes, itemsize: int, encoding: str) -> None:
    """Turn `target`, the old bytes, into the new ones, in place.

    Raises:
        ValueError: the payload is damaged or made for something else.
    """
    if not payload:
        return
    content = _decompress(payload)
    if encoding == "xor":
        if content.size != target.size:
            raise ValueError(f"a delta of {content.size} bytes for {target.size}")
        target ^= _numbers(content, itemsize)
        return
    count = int(content[:8].view(np.uint64)[0])
    split = 8 + 8 * count
    if content.size != split + itemsize * count:
        raise ValueError(f"a delta of {content.size} bytes for {count} numbers")
    changed = np.cumsum(_numbers(content[8:split], 8).view(np.uint64)).astype(np.int64)
    values = _numbers(content[split:], itemsize).view(_UNSIGNED[itemsize])
    numbers = target.view(_UNSIGNED[itemsize])
    if count and not 0 <= changed[-1] < numbers.size:
        raise ValueError(f"a delta for number {changed[-1]} of {numbers.size}")
    numbers[changed] = values


def checksum(kind: str, content: Bytes) -> str:
    """`xxh3-128`, `blake3` or `adler32` of the bytes, as hexadecimal digits."""
    return _CHECKSUMS[kind](memoryview(content))


def _blake3(content: memoryview) -> str:
    # Not everybody who runs slime has it: the check of the option says so.
    return str(importlib.import_module("blake3").blake3(content).hexdigest())


_CHECKSUMS: dict[str, Callable[[memoryview], str]] = {
    "xxh3-128": lambda content: str(xxhash.xxh3_128_hexdigest(content)),
    "blake3": _blake3,
    "adler32": lambda content: f"{zlib.adler32(content):08x}",
}


def _planes(content: Bytes, itemsize: int) -> Bytes:
    return np.ascontiguousarray(content.reshape(-1, itemsize).T).reshape(-1)


def _numbers(content: Bytes, itemsize: int) -> Bytes:
    return np.ascontiguousarray(content.reshape(itemsize, -1).T).reshape(-1)


def _compress(content: Bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(content.data)


def _decompress(payload: bytes) -> Bytes:
    try:
        return np.frombuffer(zstandard.ZstdDecompressor().decompress(payload), dtype=np.uint8)
    except zstandard.ZstdError as error:
        raise ValueError(f"the delta is damaged: {error}") from error
