"""Functions given by import path: loading, contracts, and the hooks that run over samples."""
