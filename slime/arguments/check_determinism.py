"""What `--deterministic-mode` needs: settings of libraries by environment, and kernels to avoid."""

from argparse import Namespace
from collections.abc import Iterator, Mapping

from slime.arguments.errors import Problem

# Name -> values that are deterministic; the first is taken where nothing is set. Megatron's own
# programs want the same, and cuBLAS's documentation the workspaces.
SETTINGS: dict[str, tuple[str, ...]] = {
    "CUBLAS_WORKSPACE_CONFIG": (":4096:8", ":16:8"),
    "NCCL_ALGO": ("Ring", "Tree", "CollnetDirect", "CollnetChain", "^NVLS"),
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": ("0",),  # TransformerEngine's attention
}


def check_determinism(args: Namespace) -> Iterator[Problem]:
    """Nothing else that was asked for may contradict deterministic kernels."""
    if not args.deterministic_mode:
        return
    if args.cross_entropy_loss_fusion:
        message = "its kernel is not deterministic, and --deterministic-mode is on"
        yield Problem("--cross-entropy-loss-fusion", True, message, "leave one of the two out")
    if isinstance(args.train_env_vars, dict):
        yield from check_settings(args.train_env_vars, "--train-env-vars ")


def check_settings(environment: Mapping[str, str], where: str) -> Iterator[Problem]:
    """Variables that are set, and not to a deterministic value.

    Args:
        where: stands before a variable's name in messages.
    """
    for name, values in SETTINGS.items():
        if name in environment and environment[name] not in values:
            remedy = f"leave it out, or set it to {' or '.join(values)}"
            message = "is not deterministic, and --deterministic-mode is on"
            yield Problem(where + name, environment[name], message, remedy)
