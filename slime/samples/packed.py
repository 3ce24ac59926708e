"""Numbers of a sample's tokens, kept as arrays and shown as lists.

A list of Python's numbers takes 32 bytes a token, and each is an object that whoever copies the
list has to visit. So what generation puts on a sample is kept as an array. Who reads such a field
gets a list, as published, and from then on it is the list that the sample has: it may be changed.
slime itself asks for what is `stored`.
"""

import struct
import threading
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

FIELDS = ("tokens", "loss_mask", "rollout_log_probs", "teacher_log_probs")
_UNPACKING = threading.Lock()  # two threads must not get two lists


class Packed:
    """What a field holds instead of a list: a read-only array that equals it."""

    __slots__ = ("array",)

    def __init__(self, values: np.ndarray) -> None:
        values.flags.writeable = False
        self.array = values

    def __deepcopy__(self, memo: Any) -> "Packed":
        return self


class PackedField:
    """The attribute of a class whose instances may hold a `Packed`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, owner_type: type | None = None) -> Any:
        if owner is None:
            return self
        held = vars(owner)
        try:
            value = held[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        if type(value) is Packed:
            with _UNPACKING:
                value = held[self._name] = as_list(held[self._name])
        return value

    def __set__(self, owner: Any, value: Any) -> None:
        vars(owner)[self._name] = value


def stored(sample: Any, name: str) -> Any:
    """A field as it is held: of `FIELDS` maybe a read-only array, else whatever was put there."""
    value = vars(sample)[name]
    return value.array if type(value) is Packed else value


def put(sample: Any, name: str, values: Any) -> None:
    """Set a field of `FIELDS` to a copy of a list or an array."""
    vars(sample)[name] = joined(name, values)


def joined(name: str, *parts: Any) -> Any:
    """What a field holds for lists or arrays one after the other: `Packed`, or a list where an
    array would change a number.

    Raises:
        TypeError, ValueError: Something is no number.
    """
    arrays = [made for part in parts if (made := _to_array(name, part)) is not None]
    if len(arrays) == len(parts):
        return Packed(np.concatenate(arrays))
    numbers = [number for part in parts for number in as_list(part)]
    if name == "loss_mask":
        return numbers
    return [int(n) for n in numbers] if name == "tokens" else [float(n) for n in numbers]


def as_list(value: Any) -> Any:
    """The list that a `Packed` or an array stands for; everything else as it is."""
    value = value.array if type(value) is Packed else value
    return value.tolist() if isinstance(value, np.ndarray) else value


def unsigned(values: list[Any]) -> np.ndarray:
    """Copy whole numbers from 0 to 2^32 - 1 into an array (uint32), quicker than NumPy does.

    Raises:
        TypeError, OverflowError: there are others.
    """
    numbers = array("I", values)
    return np.frombuffer(numbers, dtype=np.uint32) if numbers else np.empty(0, dtype=np.uint32)


def _to_array(name: str, values: Any) -> np.ndarray | None:
    """Token ids int32, masks uint8, log-probs float32, or float64 where they need it; None where
    no such array equals the values."""
    convert, kinds = _KINDS.get(name, (_floats, (np.float32, np.float64)))
    if isinstance(values, np.ndarray):
        return values if values.dtype in kinds else _exactly(values, kinds[-1])
    try:
        return convert(values if isinstance(values, list) else list(values))
    except (TypeError, ValueError, OverflowError, struct.error):
        return None


def _ids(values: list[Any]) -> np.ndarray | None:
    ids = unsigned(values).view(np.int32)
    return ids if not len(ids) or ids.min() >= 0 else None


def _mask(values: list[Any]) -> np.ndarray:
    return np.array(bytearray(values), dtype=np.uint8)


def _floats(values: list[Any]) -> np.ndarray:
    if not values:
        return np.empty(0, dtype=np.float32)
    doubles = np.frombuffer(struct.pack(f"{len(values)}d", *values), dtype=np.float64)
    floats = _exactly(doubles, np.float32)
    return doubles if floats is None else floats


def _exactly(values: np.ndarray, dtype: Any) -> np.ndarray | None:
    """The same numbers as another type; None where that changes one."""
    with np.errstate(all="ignore"):
        changed = values.astype(dtype)
    return changed if np.array_equal(changed, values) else None


_KINDS: dict[str, tuple[Callable[[list[Any]], np.ndarray | None], tuple[Any, ...]]] = {
    "tokens": (_ids, (np.int32,)),
    "loss_mask": (_mask, (np.uint8,)),
}
