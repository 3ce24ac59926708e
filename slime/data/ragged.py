"""Many arrays of different lengths as one: what travels between processes without being copied.

Pickled with protocol 5 it is two buffers, however many arrays it holds. Read from Ray's object
store the arrays are views into shared memory, and read-only.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

# The type codes of `array`, whose loop over a list takes half of the time of NumPy's.
_CODES = {np.dtype(np.int32): "I", np.dtype(np.float32): "f"}


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
            for number, value in enumerate(values):
                flat[offsets[number] : offsets[number + 1]] = _elements(value, flat.dtype)
        except (TypeError, ValueError, OverflowError):
            if flat.dtype != np.uint8:
                raise
            return cls.from_lists(values, np.float32)
        return cls(flat, offsets)

    @property
    def lengths(self) -> np.ndarray:
        """[n], int64."""
        return np.diff(self.offsets)

    def sums(self) -> np.ndarray:
        """[n], float64: the sum of each array."""
        totals = np.concatenate([[0.0], np.cumsum(self.flat, dtype=np.float64)])
        return np.diff(totals[self.offsets])

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


def _elements(value: Any, dtype: np.dtype[Any]) -> Any:
    """The elements of one list, as NumPy copies them quickly."""
    if not isinstance(value, list):
        return np.asarray(value, dtype=dtype)
    if dtype == np.uint8:
        return 1 if value.count(1) == len(value) else np.frombuffer(bytes(value), dtype=np.uint8)
    try:
        return np.frombuffer(array(_CODES[dtype], value), dtype=dtype)
    except (KeyError, OverflowError, TypeError):  # negative ids, NumPy's own numbers
        return np.asarray(value, dtype=dtype)
