"""Which sample is trained in which step, on which rank, in which micro-batch."""
