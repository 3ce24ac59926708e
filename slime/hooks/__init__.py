"""Functions given by import path: loading, contracts, the hooks that run over samples."""

from slime.hooks.loading import load_function

__all__ = ["load_function"]
