"""Where metrics go beside ``metrics.jsonl``: Weights & Biases and TensorBoard, when asked for."""

from argparse import Namespace
from typing import Any, Protocol

from slime.tracking.run_config import run_config


class Backend(Protocol):
    """Takes metrics as they come."""

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Record ``metrics`` at ``step``."""

    def close(self) -> None:
        """Flush and end."""


class WandbBackend:
    """Weights & Biases, by the published ``--wandb-*`` options."""

    def __init__(self, args: Namespace) -> None:
        import wandb

        if args.wandb_key:
            wandb.login(key=args.wandb_key, host=args.wandb_host)
        self._run = wandb.init(
            entity=args.wandb_team,
            project=args.wandb_project,
            group=args.wandb_group,
            name=args.run_name,
            id=args.wandb_run_id,
            mode=args.wandb_mode,
            dir=args.wandb_dir or args.run_dir,
            config=run_config(args),
            resume="allow",
        )

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Record ``metrics`` at ``step``."""
        self._run.log(metrics, step=step)

    def close(self) -> None:
        """Flush and end."""
        self._run.finish()


class TensorboardBackend:
    """TensorBoard event files under ``<run_dir>/tensorboard``."""

    def __init__(self, args: Namespace) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(f"{args.run_dir}/tensorboard")

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Record ``metrics`` at ``step``."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and end."""
        self._writer.close()


def open_backends(args: Namespace) -> list[Any]:
    """The backends that ``args`` ask for."""
    backends: list[Any] = []
    if args.use_wandb:
        backends.append(WandbBackend(args))
    if args.use_tensorboard:
        backends.append(TensorboardBackend(args))
    return backends
