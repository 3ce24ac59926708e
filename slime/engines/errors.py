"""What the engines room raises."""


class EngineDied(RuntimeError):
    """An engine or the router ended, or never became ready; the message holds the cause and the end
    of its log."""
