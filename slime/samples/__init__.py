"""`Sample`, groups of samples, and the reading of an engine's `meta_info`."""
