"""Many arrays of different lengths as one: what travels between processes without being copied.

Pickled with protocol 5 it is two buffers, however many arrays it holds. Read from Ray's object
store the arrays are views into shared memory, and read-only.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from slime.samples.packed import unsigned

_INT32, _FLOAT32, _UINT8 = (np.dtype(name) for name in ("int32", "float32", "uint8"))


class Ragged(Sequence[np.ndarray]):
    """A read-only list of one-dimensional arrays of one type.

    Attributes:
        flat: All elements, one array after the other.
        offsets: [n + 1]: array i is `flat[offsets[i]:offsets[i + 1]]`.
    """

    def __init__(self, flat: np.ndarray, offsets: np.ndarray) -> None:
        self.flat, self.offsets = flat, offsets

    @classmethod
    def from_lists(cls, values: Sequence[Any], dtype: Any) -> "Ragged":
        """Copy lists, arrays or tensors together. Masks (uint8) become float32 where a value is no
        whole number from 0 to 255."""
        offsets = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        flat = np.empty(offsets[-1], dtype=dtype)
        try:
            for value, start, end in zip(
                values, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True
            ):
                _copy(value, flat[start:end])
        except (TypeError, ValueError, OverflowError):
            if flat.dtype != _UINT8:
                raise
            return cls.from_lists(values, np.float32)
        return cls(flat, offsets)

    @property
    def lengths(self) -> np.ndarray:
        """[n], int64."""
        return np.diff(self.offsets)

    def sums(self) -> np.ndarray:
        """[n], float64: the sum of each array."""
        totals, filled = np.zeros(len(self)), self.lengths > 0
        if filled.any():  # reduceat takes an empty array for its first neighbour
            starts = self.offsets[:-1][filled]
            totals[filled] = np.add.reduceat(self.flat, starts, dtype=np.float64)
        return totals

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[np.ndarray]: ...

    def __getitem__(self, index: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self.flat[self.offsets[place] : self.offsets[place + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(np.split(self.flat, self.offsets[1:-1]) if len(self) else [])


def _copy(value: Any, to: np.ndarray) -> None:
    """Copy the elements of one list, quicker than the loop of NumPy does."""
    if not isinstance(value, list) or not value:
        to[:] = value
        if to.dtype == _UINT8 and not np.array_equal(to, value):
            raise ValueError("a mask that is no whole numbers")
    elif to.dtype == _UINT8:
        to[:] = 1 if value.count(1) == len(value) else np.frombuffer(bytes(value), dtype=_UINT8)
    else:
        try:
            if to.dtype == _FLOAT32:
                struct.pack_into(f"{len(value)}f", to.data, 0, *value)
                return
            if to.dtype == _INT32:
                to[:] = unsigned(value).view(_INT32)
                return
        except (OverflowError, TypeError, struct.error):  # negative ids, NumPy's own numbers
            pass
        to[:] = value
