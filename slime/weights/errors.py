"""What the weights room raises."""

from collections.abc import Mapping


class WeightUpdateError(RuntimeError):
    """Weights cannot be sent, or engines did not take them."""


class EnginesLeftBehind(WeightUpdateError):
    """Some engines did not take an update that the others took whole.

    What they hold must not be used until an update reaches them. `reasons` says by address why.
    """

    def __init__(self, version: int, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        listed = "; ".join(f"engine {url} {reason}" for url, reason in reasons.items())
        super().__init__(f"without weight version {version}: {listed}")
