"""Statistics that can be merged: the result is independent of how the values were split into
parts.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self


class Statistic(Protocol):
    """A number made from values, with what is needed to merge it with that of other values."""

    @property
    def value(self) -> float:
        """The number."""

    def merge(self, other: Self) -> Self:
        """That of the values of both."""


@dataclass(frozen=True)
class Mean:
    """A weighted mean, kept as numerator and denominator; NaN without weight."""

    total: float
    weight: float

    @classmethod
    def of(cls, values: Iterable[float], weights: Iterable[float] | None = None) -> "Mean":
        """The mean of `values`, each with its weight (default 1)."""
        kept = list(values)
        factors = [1.0] * len(kept) if weights is None else list(weights)
        total = math.fsum(v * w for v, w in zip(kept, factors, strict=True) if w)
        return cls(total, math.fsum(factors))

    @property
    def value(self) -> float:
        """The mean."""
        return self.total / self.weight if self.weight else math.nan

    def merge(self, other: "Mean") -> "Mean":
        """The mean over both."""
        return Mean(self.total + other.total, self.weight + other.weight)


@dataclass(frozen=True)
class Sum:
    """A sum or a count."""

    value: float

    def merge(self, other: "Sum") -> "Sum":
        """The sum of both."""
        return Sum(self.value + other.value)


@dataclass(frozen=True)
class Max:
    """A maximum; -inf of nothing."""

    value: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Max":
        """The largest of `values`."""
        return cls(max(values, default=-math.inf))

    def merge(self, other: "Max") -> "Max":
        """The larger one."""
        return Max(max(self.value, other.value))


def merge(parts: Iterable[Mapping[str, Statistic]]) -> dict[str, Statistic]:
    """Statistics over all parts; a part may lack some of them."""
    merged: dict[str, Statistic] = {}
    for part in parts:
        for name, statistic in part.items():
            merged[name] = merged[name].merge(statistic) if name in merged else statistic
    return merged


def values(statistics: Mapping[str, Statistic]) -> dict[str, float]:
    """The numbers; statistics of nothing (a mean without weight, a maximum of no values) are left
    out.
    """
    numbers = {name: float(statistic.value) for name, statistic in statistics.items()}
    return {name: number for name, number in numbers.items() if math.isfinite(number)}
