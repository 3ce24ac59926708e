"""Which groups of samples are trained on: dynamic sampling filters and buffer filters."""
