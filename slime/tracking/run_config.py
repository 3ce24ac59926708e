"""What a tracker records as the configuration of a run."""

from argparse import Namespace
from typing import Any

from slime.arguments.roles import args_of_role

# A key is nobody's business, and the options as they were given hold it too.
_LEFT_OUT = ("wandb_key", "raw_options")


def run_config(args: Namespace) -> dict[str, Any]:
    """Every option by name; under ``critic/`` those that a critic has otherwise than the actor."""
    config = {name: value for name, value in vars(args).items() if name not in _LEFT_OUT}
    if args.use_critic:
        critic = vars(args_of_role(args, "critic"))
        config |= {
            f"critic/{name}": value
            for name, value in critic.items()
            if name not in _LEFT_OUT and (name not in config or config[name] != value)
        }
    return config
