"""What the weights room raises."""


class WeightUpdateError(RuntimeError):
    """An engine did not take the new weights; the message names it. Its weights must not be used
    any more."""
