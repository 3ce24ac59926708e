"""What the rollout room raises."""


class RolloutError(RuntimeError):
    """A request could not be answered, or a rollout could not be completed; the message says
    why."""
