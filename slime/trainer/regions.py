"""Names of a trainer's memory regions; apart, so that the driver need not import torch."""

WEIGHTS, OPTIMIZER, GRADIENTS = "weights", "optimizer", "gradients"
REGIONS = (WEIGHTS, OPTIMIZER, GRADIENTS)
